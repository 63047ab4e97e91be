"""What KV dtypes cost in accuracy, on the real model: the sections `map`, `accuracy` and `retrieval` of kv_memory.py.

All of it is `tidemark eval`, called in this process: the same search, the same texts, the same figures. Measurements
are kept below .bench, so that a run that was stopped goes on.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import real_engine
import yaml
from kv_table import Check, Row, Table, at_most

from tidemark_runtime import model_store
from tidemark_runtime.evaluation import (
    configurations,
    figures,
    items,
    losses,
    map_search,
    regression,
    results,
    sensitivity,
    subject,
)
from tidemark_runtime.model import sources
from tidemark_runtime.planning import page_layout

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".bench/kv_memory"
MAP_FILES = {
    "map": ("bfloat16", ROOT / "benchmarks/results/kv_map.yaml"),
    "map of int8": ("int8", ROOT / "benchmarks/results/kv_map_int8.yaml"),
}
"""Name -> what the map keeps things in, and where it is written."""

SEARCHED = "fp8_e5m2"
"""What maps are for: of the dtypes, the one that loses most."""
SEARCH_PAGES = ("docs/decisions/0009-scheduler.md",)
SEARCH_TOKENS = 512
MOST_EXTRA_BYTES = 0.10
INT8_SHARE = 0.35
"""Of the loss without a map: what the map of int8 may leave on the text of the search."""

CHECK_PAGES = ("docs/operations/overload.md", "docs/operations/rollouts.md", "docs/operations/install.md")
"""Another text of the kind that the map was found on, and the made one is of another kind."""
PLAN = items.Plan(parts=(items.TEXT,), text_tokens=2048, window_tokens=1024)
RUNS = (("bfloat16", "made"), ("bfloat16", "pages"), ("float32", "made"))
"""K and V of the unquantized model, and the text."""
LONG_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Goals:
    """At most, against 16-bit K and V."""

    kl: float | None = None
    """Mean, nats."""
    rise: float | None = None
    """Of the perplexity; 0.01 is one per cent."""


GOALS: Mapping[str, Goals] = {"int8": Goals(kl=0.005, rise=0.005), "fp8_e4m3": Goals(rise=0.01)}
"""On each text."""
MAPPED, MAPPED_INT8 = f"{SEARCHED} + map", f"{SEARCHED} + map of int8"
JUDGED_AT_LENGTH = ("int8", "int8 + map", MAPPED, MAPPED_INT8)


def load(threads: int | None) -> subject.Subject:
    """The real model, which `tidemark models fetch` has to have fetched."""
    source = sources.resolve(real_engine.MODEL, model_store.default_store(os.environ))
    return subject.load(source, threads, lambda phase, fraction: None)


def pages_of(names: Sequence[str]) -> items.Text:
    """Pages of our documentation as one text."""
    return items.Text("pages", (("pages", "\n\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)),))


def tell(what: str, done: int, total: int) -> None:
    print(f"\r\033[K{what}: {done} of {total}", end="", file=sys.stderr, flush=True)


# ---- the map ---------------------------------------------------------------------------------------------------------


def find_maps(tested: subject.Subject) -> tuple[bool, list[str]]:
    """Searches, writes `MAP_FILES`, and tells what was found: whether each halves the loss on its own text."""
    text = pages_of(SEARCH_PAGES)
    pieces = items.windows(text, tested.encoder, SEARCH_TOKENS, SEARCH_TOKENS)
    measured = losses.TextLosses(tested.model, pieces, "float32")
    shape, known = tested.model.spec.kv_shape, None
    rows: list[Row] = []
    for name, (keep, file) in MAP_FILES.items():
        search = map_search.prepare(tested, measured, text, (SEARCHED, keep), KEPT, True, tell)
        _take_over(search, known)
        found, known = _search(search, keep), search
        assert found.chosen is not None
        notes = {"model": tested.name, "kvDtype": SEARCHED}
        file.write_text(configurations.map_text(found.segments, shape, notes), encoding="utf-8")
        if not rows:
            rows.append(Row(f"all {SEARCHED}", (f"{found.plain.kl:.4f}", "", f"{found.plain.kv_token_bytes:,.0f}")))
        rows.append(_map_row(name, keep, found))
    table = Table("On the text of the search", ("mean KL, nats", "segments kept", "KV bytes a token"), rows)
    words = (
        f"`tidemark eval sensitivity` for {SEARCHED} on {measured.tokens} tokens of {', '.join(SEARCH_PAGES)}, every "
        f"head, K and V apart, at most {MOST_EXTRA_BYTES:.0%} more KV bytes. The first keeps the dearest at 16 bits, "
        f"as many as the bytes allow; the second in int8, which takes no more bytes than {SEARCHED}: the shortest that "
        f"brings the loss to {INT8_SHARE:.0%}, to have room on other texts. ([kv_map.yaml](kv_map.yaml), "
        "[kv_map_int8.yaml](kv_map_int8.yaml).) What they do on other texts is under *Accuracy*."
    )
    return table.met, [words, "", *table.lines()]


def _search(search: sensitivity.Search, keep: str) -> sensitivity.Found:
    found = search.run(None, MOST_EXTRA_BYTES, sensitivity.QUANTIZE, sensitivity.HEADS)
    # All the room that is allowed, not just enough for half: what is found on one text has to do on others.
    limit = INT8_SHARE * found.plain.kl if keep == "int8" else min(point.kl for point in found.points)
    return search.run(limit, MOST_EXTRA_BYTES, sensitivity.QUANTIZE, sensitivity.HEADS)


def _take_over(search: sensitivity.Search, known: sensitivity.Search | None) -> None:
    """What one segment loses by being quantized is the same whatever others are kept in: it is not measured twice."""
    if known is None:
        return
    for layer in range(search.losses.shape.num_layers):
        for kind in page_layout.KINDS:
            for head in range(search.losses.shape.num_kv_heads):
                key = f"quantize {sensitivity.Unit(layer, kind, head).name}"
                if search.kept.known(key) is None:
                    search.kept.put(key, known.kept.known(key))


def _map_row(name: str, keep: str, found: sensitivity.Found) -> Row:
    assert found.chosen is not None
    share = found.chosen.kl / found.plain.kl
    extra = found.chosen.kv_token_bytes / found.plain.kv_token_bytes - 1
    cells = (
        f"{found.chosen.kl:.4f} ({share:.0%})",
        f"{len(found.segments)}",
        f"{found.chosen.kv_token_bytes:,.0f} ({extra:+.1%})",
    )
    checks = [at_most("≤ half", share, 0.5), at_most("≤ 10 % more bytes", extra, MOST_EXTRA_BYTES)]
    return Row(f"{name}: the dearest in {keep}", cells, [check for check in checks if check is not None])


def read_map(name: str = "map") -> Mapping[str, Any]:
    """Of `MAP_FILES`, as it was found."""
    _, file = MAP_FILES[name]
    if not file.is_file():
        raise SystemExit(f"{file} is not there: run the section map first")
    found: Mapping[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


# ---- text ------------------------------------------------------------------------------------------------------------


def others(tested: subject.Subject, base: str) -> tuple[configurations.Configuration, ...]:
    """Every dtype of 8 bits, those that the map is used with, and 16 bits where the base has more."""
    known = ["int8", "fp8_e4m3", SEARCHED]
    with_map = [
        entry
        for entry in configurations.chosen(["int8", SEARCHED], read_map(), tested.target("int8"))
        if entry.segments
    ]
    sixteen = [configurations.Configuration("bfloat16", "bfloat16")] if base == "float32" else []
    plain = [configurations.Configuration(name, name) for name in known]
    return (*sixteen, *sorted([*plain, *with_map], key=lambda entry: (known.index(entry.dtype), entry.name)))


def more(tested: subject.Subject) -> tuple[configurations.Configuration, ...]:
    """Measured by themselves, so that the figures of the others stay when these change."""
    _, mapped = configurations.chosen([SEARCHED], read_map("map of int8"), tested.target(SEARCHED))
    found = [configurations.Configuration(MAPPED_INT8, SEARCHED, mapped.segments)]
    if "int4" in page_layout.KV_DTYPES:
        found.append(configurations.Configuration("int4", "int4"))
    return tuple(found)


def measure_text(tested: subject.Subject) -> dict[tuple[str, str], list[results.Result]]:
    """(base, text) -> what `tidemark eval` finds, for `others` and for each of `more`."""
    return {
        (base, name): [
            measure_one(tested, base, name, others(tested, base)),
            *(measure_one(tested, base, name, (one,)) for one in more(tested)),
        ]
        for base, name in RUNS
    }


def measure_one(
    tested: subject.Subject, base: str, name: str, wanted: tuple[configurations.Configuration, ...]
) -> results.Result:
    """One of `RUNS`; goes on where it was stopped."""
    text = items.made_text(tested.encoder, PLAN) if name == "made" else pages_of(CHECK_PAGES)
    run = regression.Run(subject=tested, text=text, plan=PLAN, base_dtype=base, others=wanted)
    return regression.measure(run, KEPT, resume=True, progress=tell)


def mean_kl(tested: subject.Subject, name: str) -> float:
    """Of one of `others`, against 16 bits, the worse of both texts; measured before, or now."""
    found = [measure_one(tested, base, text, others(tested, base)) for base, text in RUNS if base == "bfloat16"]
    return max(
        entry.text.mean_kl
        for result in found
        for entry in result.configurations
        if entry.name == name and entry.text is not None
    )


def accuracy(tested: subject.Subject) -> tuple[bool, list[str]]:
    """The table of both texts, against 16 and 32 bits."""
    words = (
        f"SmolLM2-135M (4-bit weights, float32 activations), windows of {PLAN.window_tokens:,} tokens. "
        "*made* is the text that `tidemark eval` ships, half Chinese; *pages* are "
        f"{', '.join(CHECK_PAGES)}. The maps were found on neither: one keeps 16 bits, the other, *of int8*, "
        "int8; half of the loss is asked of both. Goals are for K and V in 16 bits as the "
        "base. What stands behind a rise is its standard error, √(2 KL / tokens): two models that differ by this KL "
        "differ by so much on other texts of this length. Speed is of this run, many tokens at once, and says little "
        "on a machine that is not quiet."
    )
    lines, all_met = [words], True
    for (base, name), found in measure_text(tested).items():
        entries = [entry for result in found for entry in result.configurations]
        table = Table(
            f"*{name}*, {PLAN.text_tokens:,} tokens, against {base} "
            f"({found[0].base_kv_token_bytes:,.0f} bytes a token)",
            ("mean KL, nats", "most", "perplexity rise", "same next token", "KV bytes a token", "prompt tokens/s"),
            [_text_row(entry, entries, base) for entry in entries],
        )
        all_met = all_met and table.met
        lines += ["", *table.lines()]
    return all_met, lines


def _text_row(entry: figures.Figures, entries: Sequence[figures.Figures], base: str) -> Row:
    text = entry.text
    assert text is not None
    goals = GOALS.get(entry.name, Goals()) if base == "bfloat16" else Goals()
    checks = [
        at_most(f"KL ≤ {goals.kl:g}" if goals.kl else "", text.mean_kl, goals.kl),
        at_most(f"rise ≤ {goals.rise:.1%}" if goals.rise else "", text.perplexity_rise, goals.rise),
    ]
    words = f"{text.mean_kl:.5f}"
    if entry.name in (MAPPED, MAPPED_INT8):
        plain = next(one for one in entries if one.name == SEARCHED)
        assert plain.text is not None
        share, extra = text.mean_kl / plain.text.mean_kl, entry.kv_token_bytes / plain.kv_token_bytes - 1
        words += f" ({share:.0%} of {SEARCHED})"
        if base == "bfloat16":
            checks += [at_most("≤ half", share, 0.5), at_most("≤ 10 % more bytes", extra, MOST_EXTRA_BYTES)]
    cells = (
        words,
        f"{text.max_kl:.3f}",
        f"{text.perplexity_rise:+.2%} ± {math.sqrt(2 * text.mean_kl / text.tokens):.2%}",
        f"{text.argmax_agreement:.1%}",
        f"{entry.kv_token_bytes:,.0f}",
        f"{text.speed.prompt:,.0f}" if text.speed.prompt else "",
    )
    return Row(entry.name, cells, [check for check in checks if check is not None])


# ---- facts in long text ----------------------------------------------------------------------------------------------


def retrieval(tested: subject.Subject) -> tuple[bool, list[str]]:
    """Five facts in a text as long as the model's context, in each language, asked for in one pass."""
    plan = dataclasses.replace(PLAN, parts=(items.RETRIEVAL,), lengths=(LONG_TOKENS,))
    known = others(tested, "bfloat16")
    wanted = [tuple(entry for entry in known if entry.name in ("int8", MAPPED))]
    wanted += [(entry,) for entry in (*known, *more(tested)) if entry.name in ("int8 + map", MAPPED_INT8, "int4")]
    text = items.made_text(tested.encoder, plan)
    found = [
        regression.measure(
            regression.Run(subject=tested, text=text, plan=plan, base_dtype="bfloat16", others=some),
            KEPT,
            resume=True,
            progress=tell,
        )
        for some in wanted
    ]
    rows = [_retrieval_row(entry) for result in found for entry in result.configurations]
    table = Table(
        "Answers that are those of 16 bits, token by token",
        ("as 16 bits", "right", "right with 16 bits", "mean KL of answers"),
        rows,
    )
    words = (
        f"Five facts at depths of 5 to 95 % of made texts of {LONG_TOKENS:,} tokens, the model's whole context, "
        "English and Chinese: all are asked for at the end, in one pass over the text. This small model finds only "
        "some of them at all; what counts is whether each answer is the one that it gives with 16 bits."
    )
    return table.met, [words, "", *table.lines()]


def _retrieval_row(entry: figures.Figures) -> Row:
    asked = entry.retrieval
    assert asked is not None
    cells = (
        f"{asked.same:.0%} of {asked.questions}",
        f"{asked.right:.0%}",
        f"{asked.base_right:.0%}",
        f"{asked.mean_kl:.4f}",
    )
    judged = entry.name in JUDGED_AT_LENGTH
    return Row(entry.name, cells, [Check("unchanged", asked.same == 1.0)] if judged else [])
