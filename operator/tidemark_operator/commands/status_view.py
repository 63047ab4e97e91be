"""The screen of `tidemark status`, from an overview of a running service. Pure. What is not good comes first."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import rich.text

from tidemark_operator import names
from tidemark_operator.commands import status_advice, status_pods, status_text

_NUM_EVENTS = 6
_NUM_REVISIONS = 4
_BAD_WHEN_TRUE = frozenset({"Degraded", "MemoryPressure", "LossyKV"})
_NOTICES = frozenset({"LossyKV", "MonitoringReady"})
"""Where they are not good there is something to know; the service is as it should be."""
_SHORT = 60
"""Characters of a message that may stand there twice."""
_NEUTRAL = frozenset({"Progressing"})
"""Neither good nor bad by itself."""


class _Look(NamedTuple):
    """What every block is made from."""

    overview: Mapping[str, Any]
    now: datetime.datetime
    columns: int | None


def render(
    overview: Mapping[str, Any], now: datetime.datetime | None = None, *, columns: int | None = None
) -> rich.text.Text:
    """The whole screen. Without `columns` no line is broken."""
    look = _Look(overview, now or datetime.datetime.now(datetime.UTC), columns)
    text = rich.text.Text()
    blocks = (_head, _advice, _conditions, _pods, _configuration, _revisions, _warnings, _events, _not_read)
    for number, block in enumerate(blocks):
        lines = list(block(look))
        if lines and number:
            text.append("\n")
        for line in lines:
            for piece in [line.text] if line.whole else status_text.wrapped(line.text, columns, line.hang):
                text.append(f"{piece}\n", line.style)
    text.rstrip()
    return text


def _head(look: _Look) -> Iterator[status_text.Line]:
    overview, status = look.overview, look.overview["status"]
    yield status_text.Line(status_text.source(overview.get("source", {})), "dim")
    steps = any(True for _ in status_advice.of(overview))
    phase = overview["phase"].partition(": ")[0] if steps and not overview["ready"] else overview["phase"]
    yield status_text.Line(f"{overview['name']}: {phase}", "bold green" if overview["ready"] else "bold red")
    yield status_text.Line(f"  url       {overview['url'] or 'none yet'}", whole=True)
    yield status_text.row("model", f"{status.get('model', '?')} from {_source(overview['spec'])}")
    replicas = overview["spec"].get("replicas", 1)
    yield status_text.row(
        "replicas", f"{status.get('readyReplicas', 0)} of {replicas} ready, {status.get('devices', '?')} each"
    )
    if overview.get("paused"):
        yield status_text.row("paused", f"by {names.PAUSED_ANNOTATION}: nothing is changed or repaired", "yellow")
    observed = status.get("observedGeneration")
    behind = "" if observed == overview["generation"] else f", {observed or 'none'} acted on"
    yield status_text.row("revision", f"generation {overview['generation']}{behind}")


def _advice(look: _Look) -> Iterator[status_text.Line]:
    """What to do, when there is something to do."""
    steps = list(status_advice.of(look.overview))
    if steps:
        yield status_text.Line("What to do", "bold")
    for step in steps:
        if step.command:
            yield status_text.Line(f"    {step.text}", whole=True)
            continue
        for line in step.text.splitlines():
            yield status_text.Line(f"  {line.strip()}", hang=2)


def _conditions(look: _Look) -> Iterator[status_text.Line]:
    conditions = look.overview["status"].get("conditions", ())
    if not conditions:
        return
    yield status_text.Line("Conditions", "bold")
    told = {step.text.removeprefix("wait: ") for step in status_advice.of(look.overview)}
    for condition in sorted(conditions, key=lambda item: (_is_good(item), item["status"] == "Unknown")):
        mark, style = ("✓", "green") if _is_good(condition) else ("✗", "red")
        if condition["status"] == "Unknown":
            mark, style = "?", "yellow"
        elif condition["type"] in _NOTICES and mark == "✗":
            mark, style = "!", "yellow"
        since = status_text.age(condition["lastTransitionTime"], look.now)
        again = len(condition["message"]) > _SHORT and condition["message"] in told
        told.add(condition["message"])
        first, *rest = ["as above"] if again else condition["message"].splitlines() or [""]
        line = f"  {mark} {condition['type']:<14} {condition['reason']} ({since}): {first}"
        if mark == "✓":
            yield status_text.Line(status_text.shortened(line, look.columns), style)
            continue
        yield status_text.Line(line, style, hang=6)
        for more in rest:
            yield status_text.Line(f"      {more.strip()}", style, hang=6)


def _pods(look: _Look) -> Iterator[status_text.Line]:
    return status_pods.lines(look.overview, look.now)


def _configuration(look: _Look) -> Iterator[status_text.Line]:
    """Only said by a cluster: which pods have the configuration that is wanted."""
    configuration = look.overview.get("configuration")
    if not configuration or not configuration["hash"]:
        return
    pods = configuration["pods"]
    have = [pod for pod in pods if pod["state"] == "inForce"]
    unknown = [pod for pod in pods if pod["state"] == "unknown"]
    yield status_text.Line("Configuration", "bold")
    not_known = f", not known of {len(unknown)}" if unknown else ""
    in_force = f"in force in {len(have)} of {len(pods)} pods{not_known}"
    yield status_text.row("wanted", f"{configuration['hash']} (ConfigMap {configuration['configMap']}), {in_force}")
    for pod in pods:
        if pod["state"] in _CONFIG_STATES:
            yield status_text.row("pod", f"{pod['name']} runs {pod['hash']}: {_CONFIG_STATES[pod['state']]}", "yellow")


_CONFIG_STATES = {
    "hotPending": "the change is hot and not there yet",
    "olderRevision": "started for an older revision, will be replaced",
    "rejected": "it refuses the change, see ConfigApplied",
}


def _revisions(look: _Look) -> Iterator[status_text.Line]:
    """The last ones, and those that pods run."""
    revisions: Sequence[Mapping[str, Any]] = look.overview.get("revisions", ())
    hidden = {item["number"] for item in revisions[:-_NUM_REVISIONS] if not (item["pods"] or item["current"])}
    if revisions:
        yield status_text.Line("Revisions", "bold")
    for revision in revisions:
        if revision["number"] in hidden:
            continue
        good, failed = revision["goodSince"], revision["failed"]
        how = f"served, first {status_text.age(good, look.now)} ago" if good else "has not served yet"
        pods = f", {revision['pods']} pod{'s' if revision['pods'] != 1 else ''}" if revision["pods"] else ""
        now = ", the spec of now" if revision["current"] else ""
        said = f"failed: {status_text.shortened(failed, look.columns and look.columns - 40)}" if failed else how
        yield status_text.Line(f"  {revision['number']:>4}  {said}{pods}{now}", "red" if failed else "", hang=8)


def _warnings(look: _Look) -> Iterator[status_text.Line]:
    warnings = look.overview["status"].get("warnings", ())
    if warnings:
        yield status_text.Line("Warnings", "bold")
    for warning in warnings:
        yield status_text.Line(f"  {warning}", "yellow")


def _events(look: _Look) -> Iterator[status_text.Line]:
    """The newest last, next to the prompt."""
    events = look.overview["events"][-_NUM_EVENTS:]
    if events:
        yield status_text.Line("Last events", "bold")
    for event in events:
        times = f" ×{event['count']}" if event["count"] > 1 else ""
        about = f"{event['object']}/{event['name']}" if event.get("name") else event["object"]
        age = status_text.age(event["lastTimestamp"], look.now) if event["lastTimestamp"] else "?"
        line = f"  {age:>4}  {about} {event['reason']}{times}: {status_text.shortened(event['message'], None)}"
        yield status_text.Line(line, "yellow" if event["type"] == "Warning" else "", hang=8)


def _not_read(look: _Look) -> Iterator[status_text.Line]:
    missing = look.overview.get("notRead", ())
    if missing:
        yield status_text.Line("Not shown", "bold")
    for what in missing:
        yield status_text.Line(f"  {what}", "yellow")


def _is_good(condition: Mapping[str, Any]) -> bool:
    if condition["type"] in _NEUTRAL:
        return str(condition["reason"]) != "ProgressDeadlineExceeded"
    good = "False" if condition["type"] in _BAD_WHEN_TRUE else "True"
    return str(condition["status"]) == good


def _source(spec: Mapping[str, Any]) -> str:
    source = (spec.get("model") or {}).get("source") or {}
    kind, value = next(iter(source.items()), ("?", {}))
    details = value.values() if isinstance(value, Mapping) else [value]
    return f"{kind} {' '.join(str(item) for item in details)}"
