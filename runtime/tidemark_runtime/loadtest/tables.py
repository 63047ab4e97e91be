"""Results as rows of words: the same for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_runtime.loadtest import figures, results
from tidemark_runtime.simulation import percentiles

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def of_result(result: results.Result) -> list[Table]:
    """Those that have anything to show."""
    found = result.levels
    tables = [_speed(found), _waits(result)]
    if any(level.server is not None for level in found):
        tables.append(_server(found))
    tables.append(_client(found))
    if any(level.check is not None for level in found):
        tables.append(_check(found))
    return [table for table in tables if table.rows]


def _speed(found: Sequence[figures.LevelFigures]) -> Table:
    head = (
        "LEVEL",
        "OUTPUT TOKENS/S",
        "TOTAL TOKENS/S",
        "REQUESTS/S",
        "AT ONCE",
        "REQUESTS",
        "SERVED",
        "TRIES ENDED AS",
    )
    rows = []
    for level in found:
        total = level.total
        ended = ", ".join(f"{name} {count:,}" for name, count in total.outcomes.items())
        if total.retry_after.num:
            ended += f" (Retry-After p50 {total.retry_after.p50:g} s, most {total.retry_after.max:g} s)"
        rows.append(
            (
                level.name + ("" if level.whole else " (cut short)"),
                f"{level.output_tokens_per_second:,.1f}",
                f"{level.total_tokens_per_second:,.1f}",
                f"{level.requests_per_second:,.2f}",
                f"{level.mean_concurrency:,.1f}",
                f"{total.requests:,}",
                f"{total.served:,}",
                ended,
            )
        )
    return Table("speed, and how requests ended", head, rows)


def _waits(result: results.Result) -> Table:
    rows = []
    for level in result.levels:
        for name, entry in level.classes.items():
            label = level.name if len(level.classes) == 1 else f"{level.name}, {name}"
            kinds = {
                "first token": entry.time_to_first_token,
                "between tokens": entry.between_tokens,
                "end to end": entry.end_to_end,
            }
            for index, (kind, values) in enumerate(kinds.items()):
                rows.append(("" if index else label, kind, *_cells(values)))
    return Table(
        "seconds, from when a request was due", ("LEVEL", "SECONDS", "MEAN", "P50", "P90", "P95", "P99", "MAX"), rows
    )


def _server(found: Iterable[figures.LevelFigures]) -> Table:
    head = (
        "LEVEL",
        "QUEUE WAIT MEAN",
        "P95",
        "RUNNING MEAN",
        "MOST",
        "WAITING MOST",
        "PAGES MOST",
        "PREEMPTIONS",
        "PREFIX HITS",
    )
    rows = []
    for level in found:
        server = level.server
        if server is None:
            rows.append((level.name, *[NOTHING] * (len(head) - 1)))
            continue
        rows.append(
            (
                level.name,
                f"{server.queue_wait_mean:.3f} s",
                f"{server.queue_wait_p95:.3f} s",
                NOTHING if server.running_mean is None else f"{server.running_mean:.1f}",
                NOTHING if server.running_peak is None else f"{server.running_peak:,}",
                NOTHING if server.waiting_peak is None else f"{server.waiting_peak:,}",
                _share(server.pages_used_peak),
                f"{server.preemptions:,}",
                _share(_cached(level)),
            )
        )
    return Table("what the server says", head, rows)


def _cached(level: figures.LevelFigures) -> float | None:
    """Of the prompts that count; by the server's answers."""
    total = level.total
    return total.cached_tokens / total.prompt_tokens if total.prompt_tokens else None


def _client(found: Iterable[figures.LevelFigures]) -> Table:
    rows = [
        (
            level.name,
            f"{level.client.lateness.p95 * 1e3:.1f} ms",
            f"{level.client.lateness.max * 1e3:.1f} ms",
            f"{level.client.lag.p95 * 1e3:.1f} ms",
            f"{level.client.cpu_share:.0%}",
        )
        for level in found
    ]
    return Table("the client itself", ("LEVEL", "SENT LATE P95", "MOST", "LOOP LATE P95", "CPU"), rows)


def _check(found: Iterable[figures.LevelFigures]) -> Table:
    rows = []
    for level in found:
        if level.check is not None:
            share = level.check.identical_share
            rows.append((level.name, f"{level.check.identical} of {level.check.answered}", _share(share)))
    return Table("greedy answers under load, equal to those alone", ("LEVEL", "IDENTICAL", "SHARE"), rows)


def sentences(result: results.Result) -> list[str]:
    """What tables do not say: warnings, the knee and why, notes."""
    found = [f"! {level.name}: {warning}" for level in result.levels for warning in level.client.warnings]
    for level in result.levels:
        if level.check is not None:
            found += [f"! {level.name}: another answer, {words}" for words in level.check.different]
    knee = result.knee
    if knee is not None:
        found.append(f"Knee: {knee.level or 'none'}. It is {knee.rule}.")
        found += [f"  {reason}" for reason in knee.reasons]
        found.append(knee.advice)
    about = result.about
    found.append(f"Prompts: {about.prompts}.")
    found += [f"Note: {note}." for note in about.notes]
    return found


def _cells(values: percentiles.Percentiles) -> list[str]:
    if not values.num:
        return [NOTHING] * 6
    numbers = (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
    return [f"{number:,.1f}" if number >= 100 else f"{number:.3f}" for number in numbers]


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"
