"""What a level came to, as plain data. Names and percentiles are those of `tidemark simulate`, so that a predicted
and a measured run of the same workload can be laid side by side."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidemark_runtime.loadtest import check, driver, exchange, levels, server_side
from tidemark_runtime.simulation import percentiles

ALL = "all"
"""Name of the sum over all classes."""

_LATE_SECONDS = 0.005
"""Under that nobody sees a difference."""
_LATE_SHARE = 0.05
"""Of the median first token, so much lateness is no longer nothing."""
_BUSY_SHARE = 0.85
"""Of one core: this process has one thread that sends and reads."""
_LAG_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """Requests of one class that were first sent within the window. Times in seconds, from when the first try was due,
    late or not, as its user feels it."""

    requests: int
    tries: int
    served: int
    served_first_try: int
    gave_up: int
    outcomes: dict[str, int]
    """Tries by how they ended: `ok`, `429 queue_full`, `500 internal_error`, `broken error_in_stream`, ..."""
    retry_after: percentiles.Percentiles
    """Seconds that refusals (429) said; `num` tells how many of them said any."""
    prompt_tokens: int
    """Of requests that were served, as the server counts."""
    wanted_prompt_tokens: int
    """Of the same, as the workload says."""
    output_tokens: int
    wanted_output_tokens: int
    cached_tokens: int
    """Of the prompts, found in the server's prefix cache."""
    time_to_first_token: percentiles.Percentiles
    between_tokens: percentiles.Percentiles
    """Between events with text, each most often a token."""
    end_to_end: percentiles.Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFigures:
    """How well we kept time ourselves."""

    lateness: percentiles.Percentiles
    """Seconds from when a request was due to when it left."""
    lag: percentiles.Percentiles
    """Seconds that the client's loop woke too late."""
    cpu_share: float
    """Of one core."""
    warnings: tuple[str, ...]
    """Why the figures may be the client's more than the server's; empty: they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigures:
    """One level. Tokens a second are those that came within the window, whoever asked for them."""

    name: str
    kind: str
    amount: float
    seconds: float
    """Of the window."""
    whole: bool
    """Not interrupted, and with at least the wanted number of requests."""
    output_tokens_per_second: float
    prompt_tokens_per_second: float
    total_tokens_per_second: float
    requests_per_second: float
    """That were served."""
    mean_concurrency: float
    """Requests sent and not answered to their end."""
    peak_concurrency: int
    classes: dict[str, ClassFigures]
    """By name; with more than one class their sum comes first, as `all`."""
    client: ClientFigures
    server: server_side.ServerFigures | None
    """None: the server tells nothing."""
    check: check.CheckFigures | None

    @property
    def total(self) -> ClassFigures:
        return next(iter(self.classes.values()))

    @property
    def failed_share(self) -> float:
        """Of the requests that count, how many were not served in the end."""
        total = self.total
        return 1.0 - total.served / total.requests if total.requests else 0.0


def make(
    level: levels.Level,
    record: driver.Record,
    server: server_side.ServerFigures | None,
    checked: check.CheckFigures | None,
) -> LevelFigures:
    """Of a level that is over, or was interrupted."""
    begin, end = record.begin, max(record.begin, _end(level, record))
    seconds = (end - begin) or 1.0
    counted = [entry for entry in record.tries if record.counts(entry.request) and _is_told(entry)]
    by_class = {kind.name: [e for e in counted if e.request.kind.name == kind.name] for kind in level.load.classes}
    classes = {ALL: _of_class(counted)} if len(by_class) > 1 else {}
    classes |= {name: _of_class(entries) for name, entries in by_class.items()}
    exchanges = [entry.exchange for entry in record.tries]
    output = sum(_tokens_within(found, begin, end) for found in exchanges)
    prompt = sum(_prompt_tokens(e) for e in record.tries if _is_within(e.exchange.first, begin, end))
    served = sum(found.outcome is exchange.Outcome.OK and _is_within(found.ended, begin, end) for found in exchanges)
    mean, peak = _concurrency(exchanges, begin, end)
    return LevelFigures(
        name=level.name,
        kind=str(level.kind),
        amount=level.amount,
        seconds=end - begin,
        whole=record.enough and not record.interrupted,
        output_tokens_per_second=output / seconds,
        prompt_tokens_per_second=prompt / seconds,
        total_tokens_per_second=(output + prompt) / seconds,
        requests_per_second=served / seconds,
        mean_concurrency=mean,
        peak_concurrency=peak,
        classes=classes,
        client=_client(record, next(iter(classes.values()))),
        server=server,
        check=checked,
    )


def _end(level: levels.Level, record: driver.Record) -> float:
    """Of the window; a workload that has an end is over with its last answer."""
    if level.window is not None:
        return record.end
    return max((e.exchange.ended for e in record.tries if e.exchange.ended is not None), default=record.end)


def _is_told(entry: driver.Try) -> bool:
    """It ended by itself; what we cut off when the level was interrupted says nothing."""
    return entry.exchange.outcome is not exchange.Outcome.CUT


def _of_class(entries: Sequence[driver.Try]) -> ClassFigures:
    first, whole, waits = percentiles.Values(), percentiles.Values(), percentiles.Values()
    between = percentiles.Histogram()
    outcomes: Counter[str] = Counter()
    served = [entry for entry in entries if entry.exchange.outcome is exchange.Outcome.OK]
    for entry in entries:
        found = entry.exchange
        outcomes[outcome_name(found)] += 1
        if found.outcome is exchange.Outcome.REFUSED and found.retry_after_seconds is not None:
            waits.add(found.retry_after_seconds)
        for left, right in pairwise(found.chunk_times):
            between.add(right - left)
        if found.first is not None:
            first.add(found.first - entry.request.first_sent)
    for entry in served:
        whole.add((entry.exchange.ended or 0.0) - entry.request.first_sent)
    return ClassFigures(
        requests=len({entry.request.number for entry in entries}),
        tries=len(entries),
        served=len(served),
        served_first_try=sum(entry.request.num_tries == 1 for entry in served),
        gave_up=sum(entry.is_last and entry.exchange.outcome is not exchange.Outcome.OK for entry in entries),
        outcomes=dict(sorted(outcomes.items())),
        retry_after=waits.percentiles(),
        prompt_tokens=sum(map(_prompt_tokens, served)),
        wanted_prompt_tokens=sum(entry.request.num_prompt_tokens for entry in served),
        output_tokens=sum(entry.exchange.num_output_tokens for entry in served),
        wanted_output_tokens=sum(wanted_output_tokens(entry) for entry in served),
        cached_tokens=sum(entry.exchange.cached_tokens for entry in served),
        time_to_first_token=first.percentiles(),
        between_tokens=between.percentiles(),
        end_to_end=whole.percentiles(),
    )


def outcome_name(found: exchange.Exchange) -> str:
    """`ok`; of a status the number and the code; else the outcome and what is known of it."""
    if found.outcome in (exchange.Outcome.REFUSED, exchange.Outcome.ERROR):
        code = "" if found.code == f"http_{found.status}" else f" {found.code}"
        return f"{found.status}{code}"
    if found.outcome in (exchange.Outcome.BROKEN, exchange.Outcome.UNREACHABLE):
        return f"{found.outcome} {found.code}"
    return str(found.outcome)


def wanted_output_tokens(entry: driver.Try) -> int:
    """What the model would say, cut at what the client asks for at most."""
    return min(entry.request.num_output_tokens, entry.request.max_tokens)


def _prompt_tokens(entry: driver.Try) -> int:
    told = entry.exchange.prompt_tokens
    return entry.request.num_prompt_tokens if told is None else told


def _is_within(at: float | None, begin: float, end: float) -> bool:
    return at is not None and begin <= at <= end


def _tokens_within(found: exchange.Exchange, begin: float, end: float) -> float:
    """Output tokens that came within the window; those of an event count when it came."""
    times: array[float] = found.chunk_times
    if not times:
        return found.num_output_tokens if _is_within(found.first, begin, end) else 0.0
    within = bisect_left(times, end) - bisect_left(times, begin)
    within += sum(time == end for time in times[-1:])  # the last one of a level ends its window
    return found.num_output_tokens * within / len(times)


def _concurrency(found: Iterable[exchange.Exchange], begin: float, end: float) -> tuple[float, int]:
    """Mean and peak of requests under way within the window."""
    changes: list[tuple[float, int]] = []
    total = 0.0
    for one in found:
        if one.sent is None:
            continue
        left, right = max(begin, one.sent), min(end, one.ended if one.ended is not None else end)
        if right > left:
            total += right - left
            changes += [(left, 1), (right, -1)]
    now = peak = 0
    for _, change in sorted(changes):  # at the same moment ends come before beginnings
        now += change
        peak = max(peak, now)
    return (total / (end - begin) if end > begin else 0.0), peak


def _client(record: driver.Record, total: ClassFigures) -> ClientFigures:
    late = percentiles.Values()
    for entry in record.tries:
        if entry.exchange.sent is not None:
            late.add(max(0.0, entry.exchange.sent - entry.due))
    lateness, lag = late.percentiles(), record.lag.percentiles()
    share = record.cpu_seconds / record.seconds if record.seconds else 0.0
    return ClientFigures(
        lateness=lateness, lag=lag, cpu_share=share, warnings=tuple(_warnings(lateness, lag, share, total))
    )


def _warnings(
    lateness: percentiles.Percentiles, lag: percentiles.Percentiles, share: float, total: ClassFigures
) -> Iterable[str]:
    allowed = max(_LATE_SECONDS, _LATE_SHARE * total.time_to_first_token.p50)
    if lateness.p95 > allowed:
        yield (
            f"requests left up to {lateness.p95 * 1e3:.0f} ms (p95) after they were due, more than {allowed * 1e3:.0f} "
            "ms: the client was late, and latencies hold that time"
        )
    if share > _BUSY_SHARE:
        yield f"the client computed {share:.0%} of the time of its one core: it may be what limits the throughput"
    if lag.p95 > _LAG_SECONDS:
        yield (
            f"the client's loop woke {lag.p95 * 1e3:.0f} ms (p95) too late: its machine is busy; tokens are "
            "seen that much later"
        )
