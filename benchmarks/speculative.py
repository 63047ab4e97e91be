"""Speculative decoding on the real model: the same text, how many guesses are right, what it gains, what it can lose.

    python benchmarks/speculative.py [--quick] [--json FILE]

SmolLM2-135M on one thread, so that the processor's time of the process is the engine's and neighbours on the machine do
not count. With and without guesses run in turn, round by round; of a pair the ratio of tokens a second is taken, and of
the rounds the median. Needs `tidemark models fetch smollm2-135m`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import machine
import real_engine

from tidemark_runtime import config, model_store
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.text import loading

CONTEXT_TOKENS = 2048
LOG = (
    "The harbour of Lisbeth opens to the west, and every morning at six the pilot boat leaves the inner quay. Captain "
    "Iveta Brandt keeps the log: depth 14.2 m, wind 11 knots, visibility good. The crane at berth 7 was repaired on 3 "
    "March; the crane at berth 9 waits for a new motor. Goods that arrive by rail are stored in hall C, goods that "
    "arrive by lorry in hall F."
)
LIST = "\n".join(
    f"{number}. {name}, {town}, invoice {number * 7919 % 9973}, paid"
    for number, (name, town) in enumerate(
        [("Anna Berg", "Oslo"), ("Ben Cole", "Leeds"), ("Chen Li", "Wuhan"), ("Dora Ek", "Malmo"), ("Emil Fry", "Ulm")],
        1,
    )
)
TASKS: Mapping[str, tuple[str, float]] = {
    "copy": (f"Repeat this text exactly, word for word:\n\n{LOG}", 0.0),
    "list": (f"Copy this list, line for line, and add nothing:\n\n{LIST}", 0.0),
    "story": ("Write a story about a cat who learns to sail.", 0.0),
    "story, temperature 1": ("Write a story about a cat who learns to sail.", 1.0),
}
"""Kind of text -> what is asked, and the temperature."""
QUESTIONS = (
    *(task for task, _ in TASKS.values()),
    "Explain why the sky is blue.",
    "List the planets of the solar system.",
    "Write a poem about rain.",
    "What is a prime number? Give ten examples.",
)
NGRAM = config.SpeculativeConfig(method="ngram", tokens=4)
PERIOD = "red green blue red green blue red green"
SPREAD_TEMPERATURE = 1.3
"""At 1 the model is so sure of what comes that there is nothing to compare."""
_CRITICAL = {5: 20.5, 6: 22.5, 7: 24.3, 8: 26.1, 9: 27.9, 10: 29.6, 11: 31.3, 12: 32.9}
"""Of chi-square by degrees of freedom, for a chance of 0.001 (Abramowitz and Stegun, table 26.8)."""


class Subject:
    """One loaded model; each run is an engine of its own on it."""

    def __init__(self, draft: str | None = None) -> None:
        sections: dict[str, dict[str, Any]] = {
            "scheduler": {"maxNumSeqs": 8},
            "kvCache": {"numPages": 8 * CONTEXT_TOKENS // 16, "prefixCaching": False},
            "model": {"maxContextTokens": CONTEXT_TOKENS},
            "hardware": {"threads": 1},
        }
        if draft is not None:
            sections["speculative"] = {"method": "draft", "tokens": 4, "draftModel": draft}
        self.settings = real_engine.settings_of(sections)
        self._worker = worker_thread.WorkerThread(real_engine.worker_maker(self.settings))
        self._text = loading.load(sources.resolve(real_engine.MODEL, model_store.default_store(os.environ)))

    def ids(self, question: str) -> list[int]:
        return list(self._text.encode_chat([{"role": "user", "content": question}]))

    def plain_ids(self, text: str) -> list[int]:
        return self._text.encode(text, add_special=True)

    def engine(self, speculative: config.SpeculativeConfig | None) -> core_engine.CoreEngine:
        return core_engine.CoreEngine(
            self.settings.scheduler,
            self._worker,
            max_context_tokens=CONTEXT_TOKENS,
            prefix_caching=False,
            speculative=speculative,
        )

    def close(self) -> None:
        self._worker.close()


@dataclasses.dataclass(frozen=True)
class Run:
    texts: dict[str, tuple[int, ...]]
    seconds: float
    """Of the processor, from the first token on."""
    stats: messages.EngineStats

    @property
    def rate(self) -> float:
        return sum(map(len, self.texts.values())) / self.seconds


def run(
    engine: core_engine.CoreEngine, prompts: Sequence[list[int]], tokens: int, temperature: float, seed: int = 0
) -> Run:
    """All at once, to the end."""
    requests = [
        messages.EngineRequest(
            str(number),
            prompt,
            sampling.SamplingParams(tokens, temperature=temperature, seed=seed + number, ignore_stop_tokens=True),
        )
        for number, prompt in enumerate(prompts)
    ]
    engine.submit(requests)
    texts: dict[str, list[int]] = {request.id: [] for request in requests}
    began: float | None = None
    while engine.has_work:
        for output in engine.step():
            began = time.process_time() if began is None else began
            texts[output.id].extend(output.token_ids)
    seconds = time.process_time() - (began or 0.0)
    return Run({name: tuple(text) for name, text in texts.items()}, seconds, engine.stats())


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured."""

    tokens: int
    rounds: int
    seeds: int
    questions: int
    batches: tuple[int, ...]
    kinds: tuple[str, ...]


FULL = Size(tokens=96, rounds=5, seeds=256, questions=8, batches=(1, 8), kinds=tuple(TASKS))
QUICK = Size(tokens=64, rounds=3, seeds=64, questions=4, batches=(1, 4), kinds=("copy", "story, temperature 1"))
DRAFT = Size(tokens=24, rounds=1, seeds=0, questions=2, batches=(1,), kinds=("copy",))


def exactness(subject: Subject, size: Size, speculative: config.SpeculativeConfig) -> Iterator[dict[str, Any]]:
    """Texts that are the same with and without guesses."""
    prompts = [subject.ids(question) for question in QUESTIONS[: size.questions]]
    for batch in size.batches:
        for temperature in (0.0, 0.8):
            same = guessed = right = 0
            for start in range(0, len(prompts), batch):
                some = prompts[start : start + batch]
                off = run(subject.engine(None), some, size.tokens, temperature, seed=start)
                on = run(subject.engine(speculative), some, size.tokens, temperature, seed=start)
                same += sum(off.texts[name] == on.texts[name] for name in off.texts)
                guessed += on.stats.guesses_proposed_total
                right += on.stats.guesses_accepted_total
            yield {
                "method": speculative.method,
                "batch": batch,
                "temperature": temperature,
                "texts": len(prompts),
                "same": same,
                "guesses": guessed,
                "right": right,
            }


def speed(subject: Subject, size: Size, speculative: config.SpeculativeConfig) -> Iterator[dict[str, Any]]:
    """Tokens a second with guesses over those without, by kind of text and batch."""
    for kind in size.kinds:
        question, temperature = TASKS[kind]
        for batch in size.batches:
            prompts = [subject.ids(question)] * batch
            off_engine, on_engine = subject.engine(None), subject.engine(speculative)
            ratios, rates = [], []
            for number in range(size.rounds):
                off = run(off_engine, prompts, size.tokens, temperature, seed=100 * number)
                on = run(on_engine, prompts, size.tokens, temperature, seed=100 * number)
                if off.texts != on.texts:
                    raise RuntimeError(f"{kind}, batch {batch}: texts differ")
                ratios.append(on.rate / off.rate)
                rates.append(off.rate)
            stats = on_engine.stats()
            yield {
                "method": speculative.method,
                "kind": kind,
                "batch": batch,
                "tokens_a_second_without": statistics.median(rates),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "guesses": stats.guesses_proposed_total,
                "right": stats.guesses_accepted_total,
                "generated": stats.generated_tokens_total,
            }


def distribution(subject: Subject, seeds: int) -> dict[str, Any]:
    """Second tokens of a text whose guesses are tempting, over many seeds, and over other seeds without."""
    prompt = subject.plain_ids(PERIOD)
    off_engine, on_engine = subject.engine(None), subject.engine(NGRAM)
    run(on_engine, [prompt], 48, 0.0)  # what steps take is known afterwards
    before = on_engine.stats().guesses_proposed_total
    counts: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    for start in range(0, seeds, 8):
        for number, engine in enumerate((off_engine, on_engine)):
            found = run(engine, [prompt] * 8, 5, SPREAD_TEMPERATURE, seed=1_000_000 * number + start)
            counts[number].update(text[1:2] for text in found.texts.values())
    statistic, freedom = chi_square(*counts)
    return {
        "seeds": seeds,
        "guesses": on_engine.stats().guesses_proposed_total - before,
        "chi_square": statistic,
        "freedom": freedom,
        "critical": _CRITICAL.get(freedom, 0.0),
    }


def chi_square(first: Counter[tuple[int, ...]], second: Counter[tuple[int, ...]]) -> tuple[float, int]:
    """Of two samples of the same size; what is rare in both together is one cell."""
    common = [key for key, _ in (first + second).most_common(12) if first[key] + second[key] >= 10]
    cells = [(first[key], second[key]) for key in common]
    cells.append((first.total() - sum(a for a, _ in cells), second.total() - sum(b for _, b in cells)))
    statistic = sum((a - b) ** 2 / (a + b) for a, b in cells if a + b)
    return statistic, sum(a + b > 0 for a, b in cells) - 1


def measure(size: Size) -> dict[str, Any]:
    subject = Subject()
    found: dict[str, Any] = {"machine": machine.describe(), "tokens": size.tokens, "rounds": size.rounds}
    found["speed"] = _told(speed(subject, size, NGRAM))
    found["exactness"] = _told(exactness(subject, size, NGRAM))
    found["distribution"] = distribution(subject, size.seeds)
    subject.close()
    own = sources.resolve(real_engine.MODEL, model_store.default_store(os.environ))
    drafted = Subject(str(own.path))
    found["exactness"] += _told(exactness(drafted, DRAFT, drafted.settings.speculative))
    found["speed"] += _told(speed(drafted, DRAFT, drafted.settings.speculative))
    drafted.close()
    return found


def _told(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """All of them, each on standard error as soon as it is there."""
    found = []
    for row in rows:
        print(json.dumps(row), file=sys.stderr, flush=True)
        found.append(row)
    return found


def _page(found: Mapping[str, Any]) -> str:
    lines = [
        "# Speculative decoding",
        "",
        "Command: `python benchmarks/speculative.py`. SmolLM2-135M (Q4_1) on one thread, at most 4 guesses; "
        "processor time of the process, with and without guesses in turn. draft: the model as its own draft model, "
        "which shows that guesses by the same numbers are right, and no speed.",
        "",
        f"Machine: {found['machine']}",
        "",
        f"## Texts of {found['tokens']} tokens (draft: {DRAFT.tokens}) with and without guesses",
        "",
        "| method | batch | temperature | texts | the same | guesses | right |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['method']} | {row['batch']} | {row['temperature']} | {row['texts']} | {row['same']} "
        f"| {row['guesses']} | {_share(row)} |"
        for row in found["exactness"]
    ]
    lines += [
        "",
        f"## Tokens a second with guesses over those without, {found['rounds']} rounds (draft: one)",
        "",
        "| method | text | batch | tokens/s without | ratio (median) | least to most | guesses a token | right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['method']} | {row['kind']} | {row['batch']} | {row['tokens_a_second_without']:.1f} "
        f"| **{row['ratio']:.2f}** | {row['least']:.2f} to {row['most']:.2f} "
        f"| {row['guesses'] / row['generated']:.2f} | {_share(row)} |"
        for row in found["speed"]
    ]
    chi = found["distribution"]
    lines += [
        "",
        f"## Distribution at temperature {SPREAD_TEMPERATURE}",
        "",
        f"Second tokens after `{PERIOD}`: {chi['seeds']} seeds with guesses ({chi['guesses']} were made), "
        f"{chi['seeds']} other seeds without. Chi-square {chi['chi_square']:.1f} with {chi['freedom']} degrees of "
        f"freedom; more than {chi['critical']} would have a chance of 0.001.",
    ]
    return "\n".join(lines)


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['right'] / row['guesses']:.0%}" if row["guesses"] else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes of a quiet core, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    found = measure(QUICK if arguments.quick else FULL)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(_page(found))


if __name__ == "__main__":
    main()
