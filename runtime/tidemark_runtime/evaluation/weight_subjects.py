"""Weights that are compared: one model in several formats, or a packed checkpoint beside the one it was made from.

All stand in memory at once, side by side over the same tokens, so that nothing of the comparison has to be kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tidemark_runtime import config, errors
from tidemark_runtime.evaluation import configurations, subject
from tidemark_runtime.model import sources

UNQUANTIZED = "none"
_SAMPLE = "The pump stopped at 07:45. 合同编号 2024-113，总价 5,400 元。"
"""Two vocabularies that read this alike are taken for the same."""

Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is loaded."""

    source: sources.ModelSource
    quantizations: Sequence[str] = ()
    """Values of `model.quantization`."""
    baseline: sources.ModelSource | None = None
    """The unquantized model that `source` was made from; None: `source` itself."""

    @property
    def compares_weights(self) -> bool:
        return bool(self.quantizations) or self.baseline is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Subjects:
    """The model that is the measure, and its other weights by the names of their configurations."""

    base: subject.Subject
    others: Mapping[str, subject.Subject]

    def configurations(self, base_dtype: str) -> list[configurations.Configuration]:
        """K and V as the measure has them: only the weights differ."""
        return [
            configurations.Configuration(name, base_dtype, weights=other.quantization)
            for name, other in self.others.items()
        ]


def load(wanted: Wanted, threads: int | None, progress: Progress) -> Subjects:
    """Raises ModelError, CapacityError, or ConfigError: also where a baseline is of another model."""
    if not wanted.compares_weights:
        return Subjects(subject.load(wanted.source, threads, progress), {})
    base = subject.load(wanted.baseline or wanted.source, threads, progress, UNQUANTIZED)
    others: dict[str, subject.Subject] = {}
    for quantization in dict.fromkeys(wanted.quantizations or [config.AUTO]):
        other = subject.load(wanted.source, threads, progress, quantization)
        _check_same_model(base, other)
        others[f"weights {quantization}"] = other
    return Subjects(dataclasses.replace(base, name=wanted.source.name), others)


def _check_same_model(base: subject.Subject, other: subject.Subject) -> None:
    mine, theirs = base.model.spec, other.model.spec
    seen = (mine.kv_shape, mine.hidden_size, mine.vocab_size)
    wanted = (theirs.kv_shape, theirs.hidden_size, theirs.vocab_size)
    words = [one.encoder.encode(_SAMPLE, add_special=True) for one in (base, other)]
    if seen != wanted or words[0] != words[1]:
        what = "another tokenizer" if seen == wanted else "another shape"
        raise errors.ConfigError(
            [
                errors.Problem(
                    "--baseline",
                    base.name,
                    f"the model that {other.name} was made from",
                    f"It has {what}: name the original, unquantized checkpoint",
                )
            ]
        )
