"""The tables of a result, as text cells: the terminal and the page show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_runtime.evaluation import figures, items, results, sensitivity

RANKED_ROWS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """Cells, row by row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def of_result(result: results.Result) -> list[tuple[str, Table]]:
    """(title, table): one for each part that was measured."""
    found = []
    entries = result.configurations
    texts = [(entry, entry.text) for entry in entries if entry.text is not None]
    if texts:
        found.append((f"{items.TEXT}: {result.about['text']}, {texts[0][1].tokens:,} tokens", _of_text(result, texts)))
    greedy = [(entry, entry.greedy) for entry in entries if entry.greedy is not None]
    if greedy:
        found.append((f"{items.GREEDY}: {greedy[0][1].prompts} continuations", _of_greedy(result, greedy)))
    for part, title in ((items.RETRIEVAL, "facts in long text"), (items.EXTRACTION, "fields of contracts")):
        asked = [(entry, one) for entry in entries if (one := getattr(entry, part)) is not None]
        if asked:
            found.append((f"{part}: {asked[0][1].questions} {title}", _of_asked(result, asked)))
    return found


def of_changes(changes: Sequence[results.Change]) -> Table:
    """Two runs, figure by figure."""
    rows = tuple(
        (change.configuration, change.figure, f"{change.before:.5g}", f"{change.now:.5g}", _sign(change))
        for change in changes
    )
    return Table(("CONFIGURATION", "FIGURE", "BEFORE", "NOW", "CHANGE"), rows)


def of_sensitivity(found: sensitivity.Found) -> list[tuple[str, Table]]:
    """What units cost, and what maps of them bring."""
    total = sum(max(0.0, cost.kl) for cost in found.ranking)
    ranked = tuple(
        (cost.unit.name, f"{cost.kl:.3g}", f"{cost.kl / total:.1%}" if total else "", f"+{cost.extra_bytes:g}")
        for cost in found.ranking[:RANKED_ROWS]
    )
    maps = tuple(
        (
            str(point.kept),
            f"{point.kl:.3g}",
            f"{point.kl / found.plain.kl:.0%}" if found.plain.kl else "",
            f"{point.kv_token_bytes:,.0f}",
            f"{point.kv_token_bytes / found.plain.kv_token_bytes - 1:+.1%}",
        )
        for point in found.points
    )
    return [
        (
            f"dearest of {len(found.ranking)}, by KL for each byte",
            Table(("QUANTIZED", "KL", "SHARE", "BYTES A TOKEN TO KEEP"), ranked),
        ),
        (f"maps of {found.dtype} with the dearest at {found.keep_dtype}", Table(_MAP_HEAD, maps)),
    ]


_MAP_HEAD = ("KEPT", "KL", "OF PLAIN", "KV BYTES A TOKEN", "MORE")


def _of_text(result: results.Result, texts: Sequence[tuple[figures.Figures, figures.TextFigures]]) -> Table:
    first = texts[0][1]
    rows = [
        (
            f"unquantized ({result.base_dtype})",
            *("", "", f"{first.base_perplexity:.3f}", "", ""),
            *_beside(first.base_speed.prompt, result.base_kv_token_bytes, result.base_weights_bytes),
        )
    ]
    rows += [
        (
            entry.name,
            f"{text.mean_kl:.2e}",
            f"{text.max_kl:.2e}",
            f"{text.perplexity:.3f}",
            f"{text.perplexity_rise:+.3%}",
            f"{text.argmax_agreement:.2%}",
            *_beside(text.speed.prompt, entry.kv_token_bytes, entry.weights_bytes),
        )
        for entry, text in texts
    ]
    return Table(("", "MEAN KL", "MOST KL", "PERPLEXITY", "RISE", "SAME NEXT", *_BESIDE), tuple(rows))


def _of_greedy(result: results.Result, found: Sequence[tuple[figures.Figures, figures.GreedyFigures]]) -> Table:
    base = _beside(found[0][1].base_speed.decode, result.base_kv_token_bytes, result.base_weights_bytes)
    rows = [(f"unquantized ({result.base_dtype})", "", "", *base)]
    rows += [
        (
            entry.name,
            f"{one.identical:.1%}",
            f"{one.same_tokens:.1%}",
            *_beside(one.speed.decode, entry.kv_token_bytes, entry.weights_bytes),
        )
        for entry, one in found
    ]
    return Table(("", "IDENTICAL", "TOKENS BEFORE THE FIRST THAT DIFFERS", *_BESIDE), tuple(rows))


def _of_asked(result: results.Result, found: Sequence[tuple[figures.Figures, figures.AskedFigures]]) -> Table:
    base = _beside(found[0][1].base_speed.prompt, result.base_kv_token_bytes, result.base_weights_bytes)
    rows = [(f"unquantized ({result.base_dtype})", f"{found[0][1].base_right:.1%}", "", "", *base)]
    rows += [
        (
            entry.name,
            f"{one.right:.1%}",
            f"{one.same:.1%}",
            f"{one.mean_kl:.2e}",
            *_beside(one.speed.prompt, entry.kv_token_bytes, entry.weights_bytes),
        )
        for entry, one in found
    ]
    return Table(("", "RIGHT", "AS UNQUANTIZED", "MEAN KL", *_BESIDE), tuple(rows))


_BESIDE = ("TOKENS/S", "KV BYTES A TOKEN", "WEIGHTS MB")


def _beside(speed: float | None, kv_token_bytes: float, weights_bytes: int) -> tuple[str, str, str]:
    shown = "" if speed is None else f"{speed:,.1f}"
    return shown, f"{kv_token_bytes:,.0f}", f"{weights_bytes / 1e6:,.1f}"


def _sign(change: results.Change) -> str:
    return f"{change.now - change.before:+.3g}"
