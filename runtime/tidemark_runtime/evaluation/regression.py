"""`tidemark eval MODEL`: every configuration beside the unquantized model, item by item, into a result."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark_runtime.evaluation import configurations, figures, items, journal, measuring, results, subject
from tidemark_runtime.planning import fixed_scales, page_layout, precision_map

Progress = Callable[[str, int, int], None]
"""What is measured, tokens done, tokens in all."""

Weights = Mapping[str, subject.Subject]

VERSION = 1
"""Of what is measured and how: raised when figures of before must not be used again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is compared with what, on what."""

    subject: subject.Subject
    text: items.Text
    plan: items.Plan
    base_dtype: str
    others: tuple[configurations.Configuration, ...]
    weights: Weights = dataclasses.field(default_factory=dict)
    """Of configurations that have other weights, by the names of the configurations."""

    @property
    def about(self) -> dict[str, Any]:
        """What the figures depend on, configurations apart."""
        return {
            "model": self.subject.name,
            "identity": self.subject.identity,
            "activations": self.subject.dtype,
            "baseDtype": self.base_dtype,
            "text": self.text.name,
            "textSha256": self.text.sha256,
            "plan": _listed(dataclasses.asdict(self.plan)),
            "machine": platform.machine(),
            "version": VERSION,
            **self._about_weights,
        }

    @property
    def _about_weights(self) -> dict[str, Any]:
        """Only where weights are compared: results of before say nothing of them."""
        if not self.weights:
            return {}
        return {
            "baseWeights": self.subject.quantization,
            "weights": {name: one.identity for name, one in self.weights.items()},
        }

    @property
    def fingerprint(self) -> str:
        shape = self.subject.model.spec.kv_shape
        others = {other.name: [other.dtype, written_map(other, shape), *written_scales(other)] for other in self.others}
        return journal.fingerprint({**self.about, "configurations": others})


def measure(run: Run, folder: Path, *, resume: bool, progress: Progress) -> results.Result:
    """Into `folder`, a sub-folder by fingerprint. Raises ConfigError where plan, text or folder do not do."""
    model = run.subject.model
    parts = items.build(run.plan, run.text, run.subject.encoder, model.spec.max_context_tokens)
    kept = journal.Journal(run_folder(run, folder), resume=resume)
    base = configurations.Configuration("unquantized", run.base_dtype)
    bench = measuring.Bench(model, base, run.others, {name: one.model for name, one in run.weights.items()})
    bench.warm_up()
    total = sum(item.num_tokens for part in parts.values() for item in part)
    done = 0
    measured: dict[str, list[Mapping[str, Any]]] = {}
    for part, part_items in parts.items():
        for item in part_items:
            title, before = f"{part} {item.key}", done

            def show(tokens: int, title: str = title, before: int = before) -> None:
                progress(title, before + tokens, total)

            show(0)
            found = kept.known(title)
            if found is None:
                found = bench.measure(item, show)
                kept.put(title, found)
            measured.setdefault(part, []).append(found)
            done += item.num_tokens
    progress("done", total, total)
    return _result(run, measured)


def run_folder(run: Run, folder: Path) -> Path:
    return folder / f"{run.subject.name}-{run.fingerprint}"


def _result(run: Run, measured: figures.Measured) -> results.Result:
    shape = run.subject.model.spec.kv_shape
    base = configurations.Configuration("unquantized", run.base_dtype)
    entries = tuple(
        figures.Figures(
            name=other.name,
            dtype=other.dtype,
            map=written_map(other, shape),
            kv_token_bytes=other.layout(shape).token_bytes,
            weights=other.weights,
            weights_bytes=run.weights.get(other.name, run.subject).weights_bytes,
            **figures.parts_of(other.name, measured),
        )
        for other in run.others
    )
    return results.Result(run.about, run.base_dtype, base.layout(shape).token_bytes, entries, run.subject.weights_bytes)


def written_map(other: configurations.Configuration, shape: page_layout.KVShape) -> Mapping[str, Any] | None:
    """Its precision map as rules; None where it has none."""
    return precision_map.to_mapping(other.segments, shape) if other.segments else None


def written_scales(other: configurations.Configuration) -> list[Mapping[str, Any]]:
    """Its fixed scales as a file says them; empty where it has none."""
    return [] if other.scales is None else [fixed_scales.to_mapping(other.scales)]


def _listed(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: lists for tuples, so that a comparison sees no difference."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
