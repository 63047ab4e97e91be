"""A sensitivity search with its folder, and what it found as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_runtime.evaluation import items, journal, regression, sensitivity, subject

FORMAT = "tidemark.eval.sensitivity/1"


def prepare(
    tested: subject.Subject,
    losses: sensitivity.Losses,
    text: items.Text,
    dtypes: tuple[str, str],
    folder: Path,
    resume: bool,
    progress: sensitivity.Progress,
) -> sensitivity.Search:
    """`dtypes`: of what is quantized, of what is kept. Raises ConfigError where `folder` cannot be written."""
    dtype, keep_dtype = dtypes
    facts = {
        "model": tested.name,
        "identity": tested.identity,
        "activations": tested.dtype,
        "textSha256": text.sha256,
        "tokens": losses.tokens,
        "dtypes": [dtype, keep_dtype, losses.base_dtype],
        "version": regression.VERSION,
    }
    name = f"{tested.name}-sensitivity-{journal.fingerprint(facts)}"
    kept = journal.Journal(folder / name, resume=resume)
    return sensitivity.Search(losses, dtype, keep_dtype, kept, progress)


def to_mapping(found: sensitivity.Found, notes: Mapping[str, str], map_text: str | None) -> dict[str, Any]:
    """camelCase keys; `format` says what it is."""
    return {
        "format": FORMAT,
        **notes,
        "keepDtype": found.keep_dtype,
        "tokens": found.tokens,
        "limit": found.limit,
        "plain": _point(found.plain),
        "chosen": None if found.chosen is None else _point(found.chosen),
        "points": [_point(point) for point in found.points],
        "ranking": [
            {
                "layer": cost.unit.layer,
                "head": cost.unit.head,
                "kind": cost.unit.kind,
                "kl": cost.kl,
                "extraBytes": cost.extra_bytes,
            }
            for cost in found.ranking
        ],
        "map": map_text,
    }


def _point(point: sensitivity.Point) -> dict[str, float]:
    return {"kept": point.kept, "kl": point.kl, "kvTokenBytes": point.kv_token_bytes}
