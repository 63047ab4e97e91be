"""The screen of `tidemark status`, from the overview that a running service gives. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import rich.text

_BAR_CELLS = 24
_NUM_EVENTS = 6
_BAD_WHEN_TRUE = frozenset({"Degraded", "MemoryPressure"})
_NEUTRAL = frozenset({"Progressing"})
"""Neither good nor bad by itself."""


def render(overview: Mapping[str, Any], now: datetime.datetime | None = None) -> rich.text.Text:
    """The whole screen. What is not good comes first."""
    now = now or datetime.datetime.now(datetime.UTC)
    text = rich.text.Text()
    for number, block in enumerate((_head, _advice, _conditions, _pods, _warnings, _events)):
        lines = list(block(overview, now))
        if lines and number:
            text.append("\n")
        for line, style in lines:
            text.append(f"{line}\n", style)
    text.rstrip()
    return text


Lines = Iterator[tuple[str, str]]


def _head(overview: Mapping[str, Any], _: datetime.datetime) -> Lines:
    status = overview["status"]
    yield f"{overview['name']}: {overview['phase']}", "bold green" if overview["ready"] else "bold red"
    yield f"  url       {overview['url'] or 'none yet'}", ""
    yield f"  model     {status.get('model', '?')} from {_source(overview['spec'])}", ""
    replicas = overview["spec"].get("replicas", 1)
    yield f"  replicas  {status.get('readyReplicas', 0)} of {replicas} ready, {status.get('devices', '?')} each", ""
    observed = status.get("observedGeneration")
    behind = "" if observed == overview["generation"] else f", {observed} acted on"
    yield f"  revision  generation {overview['generation']}{behind}", ""


def _advice(overview: Mapping[str, Any], _: datetime.datetime) -> Lines:
    """What to do, when there is something to do."""
    if overview["ready"]:
        return
    troubled = [pod for pod in overview["pods"] if pod["lastState"] or "waiting" in pod["state"]]
    yield "What to do", "bold"
    ready = next((item for item in overview["status"].get("conditions", ()) if item["type"] == "Ready"), None)
    if ready is not None and ready["reason"] == "InvalidSpec":
        yield "  correct the values named below, then save the file or `tidemark apply FILE`", ""
    elif troubled:
        yield f"  {(ready or {}).get('message', 'see the log')}", ""
        for pod in troubled:
            yield f"  read its log: {pod['log']}", ""
    else:
        yield f"  wait: {(ready or {}).get('message', 'it is starting')}", ""


def _conditions(overview: Mapping[str, Any], now: datetime.datetime) -> Lines:
    conditions = overview["status"].get("conditions", ())
    if not conditions:
        return
    yield "Conditions", "bold"
    for condition in sorted(conditions, key=_is_good):
        mark, style = ("✓", "green") if _is_good(condition) else ("✗", "red")
        if condition["status"] == "Unknown":
            mark, style = "?", "yellow"
        since = _age(condition["lastTransitionTime"], now)
        first, *rest = condition["message"].splitlines() or [""]
        yield f"  {mark} {condition['type']:<14} {condition['reason']} ({since}): {first}", style
        for line in rest:
            yield f"      {line.strip()}", style


def _pods(overview: Mapping[str, Any], _: datetime.datetime) -> Lines:
    for pod in overview["pods"]:
        restarts = pod["restarts"]
        again = f", {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
        state = "ending" if pod["terminating"] else "ready" if pod["ready"] else "not ready"
        pid = f", process {pod['pid']}" if pod["pid"] else ""
        yield f"Pod {pod['name']}: {state}{pid}{again}", "bold"
        if "waiting" in pod["state"]:
            yield f"  waits     {pod['state']['waiting']['reason']}: {pod['state']['waiting']['message']}", ""
        if pod["engine"] is not None:
            yield from _engine(pod["engine"])
        yield f"  log       {pod['log']}", "dim"


def _engine(engine: Mapping[str, Any]) -> Lines:
    memory, queue, worker = engine["memory"], engine["queue"], engine["worker"]
    yield f"  engine    {engine['state']}: {engine['message']}", ""
    if engine.get("load") and engine["state"] == "loading":
        yield f"  loading   {_bar(engine['load']['fraction'])} {engine['load']['phase']}", ""
    if memory["pagesTotal"]:
        used, total = memory["pagesUsed"], memory["pagesTotal"]
        size = _bytes(total * memory["pageBytes"])
        yield f"  kv pages  {_bar(used / total)} {used} of {total} pages of {memory['blockSize']} tokens, {size}", ""
    parts = ", ".join(f"{name} {_bytes(size)}" for name, size in sorted(memory["partsBytes"].items()))
    if parts:
        yield f"  memory    {parts}", ""
    oldest = f", the oldest for {queue['oldestWaitSeconds']:.1f} s" if queue["waiting"] else ""
    preempted = f"; {queue['preemptionsTotal']} preempted so far" if queue["preemptionsTotal"] else ""
    yield f"  queue     {queue['running']} running, {queue['waiting']} waiting{oldest}{preempted}", ""
    yield f"  config    {engine['config']['hash']}", ""
    if worker:
        yield f"  worker    {', '.join(f'{key} {worker[key]}' for key in _WORKER_KEYS if key in worker)}", ""
    if engine["kernelPaths"]:
        yield f"  kernels   {'; '.join(_by_path(engine['kernelPaths']))}", ""
    if "torch" in engine["kernelPaths"].values():
        yield f"  SLOW      kernels run on plain torch: {worker.get('kernels', 'no reason given')}", "yellow"


_WORKER_KEYS = ("device", "dtype", "kvDtype", "threads")
"""What fits on one line; the rest, with reasons and measurements, is in `--output json`."""


def _by_path(paths: Mapping[str, str]) -> list[str]:
    """`cpu-c: paged_attention, rms_norm`: ops by the path that runs them."""
    grouped: dict[str, list[str]] = {}
    for op, path in sorted(paths.items()):
        grouped.setdefault(path, []).append(op)
    return [f"{path}: {', '.join(ops)}" for path, ops in grouped.items()]


def _warnings(overview: Mapping[str, Any], _: datetime.datetime) -> Lines:
    warnings = overview["status"].get("warnings", ())
    if warnings:
        yield "Warnings", "bold"
    for warning in warnings:
        yield f"  {warning}", "yellow"


def _events(overview: Mapping[str, Any], now: datetime.datetime) -> Lines:
    events = overview["events"][-_NUM_EVENTS:]
    if events:
        yield "Last events", "bold"
    for event in reversed(events):
        times = f" ×{event['count']}" if event["count"] > 1 else ""
        first = (event["message"].splitlines() or [""])[0]
        age = _age(event["lastTimestamp"], now)
        yield (
            f"  {age:>4}  {event['object']} {event['reason']}{times}: {first}",
            ("yellow" if event["type"] == "Warning" else ""),
        )


def _is_good(condition: Mapping[str, Any]) -> bool:
    if condition["type"] in _NEUTRAL:
        return str(condition["reason"]) != "ProgressDeadlineExceeded"
    good = "False" if condition["type"] in _BAD_WHEN_TRUE else "True"
    return str(condition["status"]) == good


def _source(spec: Mapping[str, Any]) -> str:
    source = spec.get("model", {}).get("source", {})
    kind, value = next(iter(source.items()), ("?", {}))
    details = value.values() if isinstance(value, Mapping) else [value]
    return f"{kind} {' '.join(str(item) for item in details)}"


def _bar(ratio: float) -> str:
    full = min(_BAR_CELLS, round(ratio * _BAR_CELLS))
    return f"{'█' * full}{'░' * (_BAR_CELLS - full)} {ratio:4.0%}"


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit in ("B", "KiB") or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _age(timestamp: str, now: datetime.datetime) -> str:
    """`12s`, `5m`, `3h`, `2d`."""
    seconds = int((now - datetime.datetime.fromisoformat(timestamp)).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"
