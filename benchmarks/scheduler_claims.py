"""What the scheduler promises, each promise beside the plain alternative in the same run, over several seeds.

    python benchmarks/scheduler_claims.py                    the comparisons: about ten minutes on two quiet cores
    python benchmarks/scheduler_claims.py livelock soak      the two long ones: about ten minutes each
    python benchmarks/scheduler_claims.py storm --seeds 5    one comparison

Everything happens on the virtual clock of `tidemark simulate` and is deterministic by seed: neither the machine nor its
load changes a figure (memory and wall-clock time of the soak excepted). Each section is written into
benchmarks/results/scheduler_claims.md by itself, and the others stay as they are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import machine
import scheduler_scenarios as scenarios
import sections

RESULTS = Path(__file__).resolve().parent / "results/scheduler_claims.md"
LONG = ("livelock", "soak")
NUM_LIVELOCK_SEEDS = 200
SOAK_HOURS = 9.0

HEAD = """# What the scheduler promises, measured

Command: `python benchmarks/scheduler_claims.py` (and `... livelock soak` for the long ones). The real scheduler, pool,
swap space and overload control run on the virtual clock of `tidemark simulate`: only the duration of a step comes from
a formula (`runtime/tidemark_runtime/worker/step_cost.py`; [simulation_check.md](simulation_check.md) says how good it
is). Cells are means over the seeds, with smallest and largest value; a goal counts as met when every seed meets it.
What the scheduler itself costs, up to 10,000 waiting: [scheduling.md](scheduling.md).
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a table."""

    key: str
    words: str
    digits: int = 2
    goal: str = ""
    met: Callable[[float], bool] | None = None
    """Asked of ours, for every seed."""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    title: str
    words: str
    variants: dict[str, str]
    """Key of a variant -> heading of its column; ours is the last."""
    figures: tuple[Figure, ...]
    judged: tuple[str, ...] = ("ours",)
    """Variants that have to meet the goals."""


def _at_least(least: float) -> Callable[[float], bool]:
    return lambda value: value >= least


def _at_most(most: float) -> Callable[[float], bool]:
    return lambda value: value <= most


SECTIONS = (
    Section(
        "concurrency",
        "Concurrency at equal memory",
        "Profile `rtx4090/7b` (Qwen2.5-7B in bfloat16 on a 24 GB card), `examples/workloads/saturation.yaml`: 200 "
        "users who never pause, 2,000 requests, contexts to 32k, `max_tokens` 4,400, answers far shorter. *Reserving "
        "the maximum* is the same engine with the same lines in which a request starts only when pages for its "
        "prompt and its whole `max_tokens` are free, and gets them; an engine that reserves the model's whole "
        "context would hold what the first row says. *Default lines* is 0.70 and 0.90: room for those that run to "
        "grow, which a site that knows its lengths can give up, as the file does (0.98 and 0.99).",
        {"plain": "reserving the maximum", "default lines": "ours, default lines", "ours": "ours, lines of the file"},
        (
            Figure("whole context", "whole contexts that fit", 1),
            Figure("concurrency", "sequences that compute, mean over all time", 1, "≥ 110", _at_least(110)),
            Figure("ratio", "times as many", 2, "≥ 5", _at_least(5)),
            Figure("held", "pages in use while somebody waits", 1, "≥ 95 %", _at_least(0.95), percent=True),
            Figure("waste", "of these, room that holds no token", 2, "< 4 %", _at_most(0.04), percent=True),
            Figure("pages", "of all room, what holds tokens", 1, percent=True),
            Figure("tokens/s", "output tokens/s", 0),
            Figure("preemptions", "preemptions", 0),
            Figure("failed", "requests not served", 0, "0", _at_most(0)),
        ),
    ),
    Section(
        "long_prompt",
        "A prompt of 16k tokens among one-line questions",
        "Profile `l40s/8b`, `examples/workloads/long-prompt.yaml`, with a contract every 20 s for 320 s, so that "
        "there is something to count: questions that are sent while a contract's prompt is computed, each beside the "
        "same question in the same run without contracts. *First come, first served*: one lane, no target for a "
        "step's time. *No target*: two lanes, `targetStepSeconds` not set, steps of 1,024 tokens. *Nothing set*: the "
        "default settings, steps of 512 tokens.",
        {
            "plain": "first come, first served",
            "no target": "lanes, no target",
            "defaults": "lanes, nothing set",
            "small steps": "lanes, 256 tokens a step",
            "ours": "ours, 0.03 s a step",
        },
        (
            Figure("questions", "questions counted", 0),
            Figure("unloaded mean", "first token without contracts, mean s", 3),
            Figure("mean", "first token, mean s", 3),
            Figure("mean ratio", "means, times unloaded", 2, "≤ 1.5", _at_most(1.5)),
            Figure("p95 ratio", "95th percentiles, times unloaded", 2, "≤ 1.5", _at_most(1.5)),
            Figure("max ratio", "the slowest, times unloaded", 2),
            Figure("contract first", "the contract's first token, s", 2),
            Figure("contract", "the contract, to its end, s", 2),
            Figure("contract ratio", "times first come, first served", 3, "≤ 1.15", _at_most(1.15)),
        ),
    ),
    Section(
        "pressed",
        "Half as much again as the card can serve",
        "Profile `rtx4090/7b`, 1,000 s of 2.1 short questions a second whose answers grow to 2,000 tokens on average "
        "and 12,000 at most (the card serves about 1.4), default lines, no swap space. *5 % free*: one line at 0.95, "
        "above which nobody starts, the reserve of vllm-project/vllm#44594. *No line*: whoever fits starts. "
        "*Unpressed*: the best of the same engine at 0.75 and 1.0 times what the card serves. Tokens a second from "
        "100 s to 1,000 s.",
        {"no watermark": "no line", "plain": "5 % free", "ours": "ours"},
        (
            Figure("requests", "requests", 0),
            Figure("preemptions", "preemptions", 0, "fewer than 5 % free"),
            Figure("most", "of one request, most", 0, "≤ 3, its bound", _at_most(3)),
            Figure("failed", "requests not served", 0, "0", _at_most(0)),
            Figure("tokens/s", "output tokens/s", 0),
            Figure("unpressed share", "of the unpressed throughput", 1, "≥ 97 %", _at_least(0.97), percent=True),
            Figure("end to end p95", "end to end with the queue, p95 s", 0),
        ),
    ),
    Section(
        "urgent",
        "An important request at a full pool",
        "Profile `rtx4090/7b`, a batch of long answers (140 users who never pause) under lines at 0.99, so that the "
        "pool is full, 8 GiB of swap space; requests of 600 to 1,400 tokens, and lines of 16 to 60, come at random "
        "with higher priority. *Unloaded*: these, and nothing else on the card. *Without priority*: they wait with "
        "all others. *Room*: 40 users, half of the pool. A line's own step is shorter than what it waits for: the "
        "rest of the step that runs, and the one that is planned already. So beside an idle card it takes about half "
        "as long again, nearly so with room, too.",
        {"plain": "full, without priority", "room": "room, with priority", "ours": "full, with priority"},
        (
            Figure("requests", "important requests", 0),
            Figure("used", "pages in use while they come", 1, percent=True),
            Figure("unloaded p50", "first token unloaded, median s", 3),
            Figure("p50", "first token, median s", 3),
            Figure("p50 ratio", "medians, times unloaded", 2, "≤ 1.5", _at_most(1.5)),
            Figure("p95 ratio", "95th percentiles, times unloaded", 2, "≤ 1.5", _at_most(1.5)),
            Figure("line p50", "a line's first token, median s", 3),
            Figure("line ratio", "medians, times unloaded", 2),
            Figure("preemptions", "preemptions", 0),
            Figure("most", "of one request, most", 0, "≤ 3, its bound", _at_most(3)),
            Figure("failed", "of the batch, not served", 0, "0", _at_most(0)),
        ),
    ),
    Section(
        "victims",
        "Answers of those that were preempted",
        "80 requests of random lengths and two priorities on 64 pages, in the worker that keeps a digest of all "
        "tokens before it where others keep keys and values (`tests/support/page_checking_worker.py`): a page that "
        "is lost, shared wrongly or copied too early changes the text. Each answer beside what the same request gets "
        "alone on an empty engine. The same with the real CPU engine: `benchmarks/soak.py`, and "
        "`tests/integration/server/test_real_memory.py`.",
        {"recompute": "computed again", "swap": "swapped"},
        (
            Figure("victims", "requests that were preempted", 0),
            Figure("equal", "answers equal to the token", 0),
            Figure("different", "answers that differ", 0, "0", _at_most(0)),
        ),
        judged=("recompute", "swap"),
    ),
    Section(
        "storm",
        "A storm of retries",
        "Profile `l40s/8b`, `examples/workloads/overload.yaml`: first tries alone are more than the device can "
        "serve; for 100 s twice as much comes on top. First tries that were served in these 100 s, beside the same "
        "run without the storm. *Not marked*: the storm's requests do not say that they are retries, so they have no "
        "budget of their own. With `agingSeconds` 2, all that wait are old.",
        {
            "plain": "not marked",
            "ours": "ours",
            "plain, ageing 2 s": "not marked, ageing 2 s",
            "ours, ageing 2 s": "ours, ageing 2 s",
        },
        (
            Figure("calm", "first tries served without the storm", 0),
            Figure("served", "first tries served in it", 0),
            Figure("share", "share", 1, "≥ 95 %", _at_least(0.95), percent=True),
            Figure("calm p50", "their first token without it, median s", 2),
            Figure("p50", "their first token in it, median s", 2),
            Figure("storm served", "of the storm, served", 0),
        ),
        judged=("ours", "ours, ageing 2 s"),
    ),
)

TITLES = {section.name: section.title for section in SECTIONS} | {
    "livelock": "No livelock in a million steps",
    "soak": "Nine hours",
}


# ---- tables ----------------------------------------------------------------------------------------------------------


def compare(section: Section, results: Sequence[scenarios.Variants]) -> tuple[bool, list[str]]:
    """Whether all goals are met, and the lines of the table."""
    lines = ["| | " + " | ".join(section.variants.values()) + " | goal | |", "|---" * (len(section.variants) + 3) + "|"]
    all_met = True
    for figure in section.figures:
        cells = [_cell(figure, [result[name].get(figure.key) for result in results]) for name in section.variants]
        met = _is_met(section, figure, results)
        all_met = all_met and met is not False
        mark = "" if met is None else "met" if met else "**not met**"
        lines.append(f"| {figure.words} | {' | '.join(cells)} | {figure.goal} | {mark} |")
    return all_met, lines


def _is_met(section: Section, figure: Figure, results: Sequence[scenarios.Variants]) -> bool | None:
    if figure.goal.startswith("fewer"):
        return all(result["ours"][figure.key] < result["plain"][figure.key] for result in results)
    if figure.met is None:
        return None
    return all(figure.met(result[name][figure.key]) for result in results for name in section.judged)


def _cell(figure: Figure, values: Sequence[float | None]) -> str:
    found = [value * (100 if figure.percent else 1) for value in values if value is not None]
    if not found:
        return ""
    texts = [f"{value:,.{figure.digits}f}" for value in (statistics.fmean(found), min(found), max(found))]
    unit = " %" if figure.percent else ""
    return f"{texts[0]}{unit}" if texts[1] == texts[2] else f"{texts[0]}{unit} ({texts[1]} to {texts[2]})"


def run_comparisons(names: Sequence[str], seeds: range, pool: futures.Executor) -> None:
    wanted = [section for section in SECTIONS if section.name in names]
    jobs = {
        section.name: [pool.submit(scenarios.timed, scenarios.SCENARIOS[section.name], seed) for seed in seeds]
        for section in wanted
    }
    for section in wanted:
        found = [job.result() for job in jobs[section.name]]
        met, lines = compare(section, [variants for variants, _ in found])
        command = f"`python benchmarks/scheduler_claims.py {section.name} --seeds {len(seeds)}`"
        took = f"{sum(seconds for _, seconds in found):,.0f} s of computing"
        made = f"{command}, seeds {seeds[0]} to {seeds[-1]}, {took} on {machine.describe()}."
        write(section.name, met, [section.words, "", *lines, "", made])


def run_livelock(num_seeds: int, pool: futures.Executor) -> None:
    started = time.perf_counter()
    results = list(pool.map(scenarios.livelock, range(1, num_seeds + 1), chunksize=4))
    found = [result["ours"] for result in results]
    total = {key: sum(entry[key] for entry in found) for key in found[0]}
    met = total["steps"] >= num_seeds * scenarios.LEAST_STEPS and not any(
        total[key] for key in ("unfinished", "over the bound", "pages left")
    )
    words = (
        f"{num_seeds} engines with small pools (40 to 119 pages) and settings by chance, each to the end of its last "
        "request: lines anywhere, no hysteresis, no fairness, no preemptions or ten, swap space for nobody or for "
        "all, shared prompts, clients that come back. The sums of pages, slots and queues are checked every 25 "
        f"steps; a run that has not ended after {scenarios.MOST_STEPS:,} steps, or that makes no progress, is an "
        "error. The plain alternative, preempting without a bound, is what `maxPreemptionsPerRequest` excludes."
    )
    rows = {
        "steps": "steps in all",
        "requests": "requests and tries",
        "preemptions": "preemptions",
        "unfinished": "requests without an end",
        "over the bound": "requests preempted more often than allowed",
        "pages left": "pages still held at the end",
    }
    table = [f"| {title} | {total[key]:,.0f} |" for key, title in rows.items()]
    least = min(entry["steps"] for entry in found)
    table.insert(1, f"| of one engine, least and most | {least:,.0f}, {max(entry['steps'] for entry in found):,.0f} |")
    took = f"{time.perf_counter() - started:,.0f} s on {machine.describe()}."
    lines = [words, "", "| | |", "|---|---|", *table, "", f"`python benchmarks/scheduler_claims.py livelock`, {took}"]
    write("livelock", met, lines)


RECORD_BYTES = 3 * 32
"""Of a request: floats of 24 bytes, and their places in lists."""


def run_soak(hours: float) -> None:
    started = time.perf_counter()
    samples = scenarios.soak(hours, tell=lambda sample: print(sample, flush=True))
    later = [sample.rss_mib for sample in samples if sample.seconds >= 3600.0] or [samples[-1].rss_mib]
    growth = later[-1] - later[0]
    first = next((sample for sample in samples if sample.seconds >= 3600.0), samples[-1])
    kept = (samples[-1].requests - first.requests) * RECORD_BYTES / 2**20
    is_flat = growth - kept <= 0.02 * later[0]
    met = samples[-1].seconds >= hours * 3600.0 and is_flat and not samples[-1].pages_used
    words = (
        f"Profile `{scenarios.SOAK_PROFILE}`, {hours:g} hours of chat, documents and batches, more than it can serve, "
        "with priorities, deadlines, retries, swap space and prefix cache. Sums are checked every 1,000 steps, and "
        "no page is held at the end. Flat: after the first hour, memory grows by less than 2 % beside what the "
        f"simulation keeps of every request for its percentiles, three numbers of {RECORD_BYTES // 3} bytes."
    )
    table = [
        "| virtual hours | steps | requests | preemptions | pages in use | resident MiB |",
        "|---|---|---|---|---|---|",
    ]
    for sample in samples[:: max(1, len(samples) // 12)] + samples[-1:]:
        table.append(
            f"| {sample.seconds / 3600:.1f} | {sample.steps:,} | {sample.requests:,} | {sample.preemptions:,} "
            f"| {sample.pages_used:,} | {sample.rss_mib:.0f} |"
        )
    took = f"{time.perf_counter() - started:,.0f} s on {machine.describe()}."
    command = f"`python benchmarks/scheduler_claims.py soak --hours {hours:g}`, {took}"
    note = f"Memory from the first hour to the end: {growth:+.1f} MiB, of which {kept:.1f} MiB are kept on purpose."
    write("soak", met, [words, "", *table, "", note, "", command])


# ---- the file --------------------------------------------------------------------------------------------------------


def write(name: str, met: bool, lines: Sequence[str]) -> None:
    """Put a section into the file, and show it."""
    print(f"\n{sections.Results(RESULTS, HEAD, TITLES).write(name, met, lines)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(TITLES)}")
    parser.add_argument("--seeds", type=int, default=3, help="of each comparison")
    parser.add_argument("--livelock-seeds", type=int, default=NUM_LIVELOCK_SEEDS)
    parser.add_argument("--hours", type=float, default=SOAK_HOURS, help="of the soak")
    parser.add_argument("--jobs", type=int, default=None, help="processes; default: one a core")
    arguments = parser.parse_args()
    names = arguments.sections or [section.name for section in SECTIONS]
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(TITLES)}")
    with futures.ProcessPoolExecutor(arguments.jobs) as pool:
        run_comparisons(names, range(1, arguments.seeds + 1), pool)
        if "livelock" in names:
            run_livelock(arguments.livelock_seeds, pool)
    if "soak" in names:
        run_soak(arguments.hours)


if __name__ == "__main__":
    main()
