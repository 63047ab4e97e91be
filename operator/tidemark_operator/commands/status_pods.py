"""The blocks of the screen about pods: state, engine, memory, queue. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark_operator.commands import status_advice, status_text

_MAX_PODS = 4
"""Pods in full; the rest in one line."""
_WORKER_KEYS = ("device", "dtype", "kvDtype", "threads")
"""What fits on one line; the rest, with reasons and measurements, is in `--output json`."""


def lines(overview: Mapping[str, Any], now: datetime.datetime) -> Iterator[status_text.Line]:
    """Pods that are not ready first."""
    pods = sorted(overview["pods"], key=lambda pod: (pod["ready"], pod["name"]))
    marks = _lines_of_memory(overview)
    for number, pod in enumerate(pods[:_MAX_PODS]):
        if number:
            yield status_text.Line("")
        yield from _pod(pod, marks, now)
    rest = pods[_MAX_PODS:]
    if rest:
        ready = sum(bool(pod["ready"]) for pod in rest)
        yield status_text.Line(f"... and {len(rest)} more pods, {ready} ready; `--output json` has all", "bold")


def _pod(pod: Mapping[str, Any], marks: str, now: datetime.datetime) -> Iterator[status_text.Line]:
    restarts = pod["restarts"]
    again = f", {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
    state = "ending" if pod["terminating"] else "ready" if pod["ready"] else "not ready"
    pid = f", process {pod['pid']}" if pod["pid"] else ""
    node = f", on {pod['node']}" if pod.get("node") else ""
    yield status_text.Line(f"Pod {pod['name']}: {state}{node}{pid}{again}", "bold")
    if "waiting" in pod["state"]:
        waiting = pod["state"]["waiting"]
        yield status_text.row("waits", f"{waiting.get('reason', '')}: {waiting.get('message') or 'no reason given'}")
    elif not pod["state"] and pod.get("finding"):
        yield status_text.row("waits", pod["finding"]["reason"])
    ended = (pod["lastState"] or pod["state"]).get("terminated")
    if ended and "exitCode" in ended:
        yield status_text.row("last exit", _ended(ended, now))
    if pod["engine"] is not None:
        yield from _engine(pod["engine"], marks)
    elif pod.get("notAsked"):
        yield status_text.row("engine", f"(not asked: {pod['notAsked']})")
    if status_advice.has_log(pod):
        yield status_text.Line(f"  log       {pod['log']}", "dim", whole=True)


def _ended(ended: Mapping[str, Any], now: datetime.datetime) -> str:
    reason = f" ({ended['reason']})" if ended.get("reason") not in (None, "", "Error") else ""
    when = f", {status_text.age(ended['finishedAt'], now)} ago" if ended.get("finishedAt") else ""
    return f"code {ended['exitCode']}{reason}{when}"


def _engine(engine: Mapping[str, Any], marks: str) -> Iterator[status_text.Line]:
    memory, queue, worker = engine["memory"], engine["queue"], engine["worker"]
    yield status_text.row("engine", f"{engine['state']}: {engine['message']}")
    if engine.get("load") and engine["state"] == "loading":
        yield status_text.row("loading", f"{status_text.bar(engine['load']['fraction'])} {engine['load']['phase']}")
    if memory["pagesTotal"]:
        used, total = memory["pagesUsed"], memory["pagesTotal"]
        size = status_text.num_bytes(total * memory["pageBytes"])
        pages = f"{used} of {total} pages of {memory['blockSize']} tokens, {size}"
        yield status_text.row("kv pages", f"{status_text.bar(used / total)} {pages}")
        if marks:
            yield status_text.row("lines", marks)
    parts = ", ".join(f"{name} {status_text.num_bytes(size)}" for name, size in sorted(memory["partsBytes"].items()))
    if parts:
        yield status_text.row("memory", parts)
    oldest = f", the oldest for {queue['oldestWaitSeconds']:.1f} s" if queue["waiting"] else ""
    preempted = f"; {queue['preemptionsTotal']} preempted so far" if queue["preemptionsTotal"] else ""
    yield status_text.row("queue", f"{queue['running']} running, {queue['waiting']} waiting{oldest}{preempted}")
    yield status_text.row("config", engine["config"]["hash"] + _generation(engine["config"]))
    if worker:
        yield status_text.row("worker", ", ".join(f"{key} {worker[key]}" for key in _WORKER_KEYS if key in worker))
    if engine["kernelPaths"]:
        yield status_text.row("kernels", "; ".join(_by_path(engine["kernelPaths"])))
    yield from _unplanned(engine["kernelPaths"])


def _generation(config: Mapping[str, Any]) -> str:
    """How often it was changed while the process ran; the first is the one that it started with."""
    generation = config.get("generation", 1)
    return f", changed {generation - 1}× since the start" if generation > 1 else ""


def _lines_of_memory(overview: Mapping[str, Any]) -> str:
    """`spec.watermarks`, where it is set."""
    marks = overview["spec"].get("watermarks") or {}
    return ", ".join(f"{name} from {marks[name]:.0%}" for name in ("queue", "preempt") if marks.get(name) is not None)


def _by_path(paths: Sequence[Mapping[str, Any]]) -> list[str]:
    """`cpu-c: paged_attention (int8), rms_norm (float32)`: ops, with the dtypes they ran in, by the path."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for each in paths:
        grouped.setdefault(each["path"], {}).setdefault(each["op"], []).append(each["dtype"])
    lines = []
    for path, ops in sorted(grouped.items()):
        named = ", ".join(f"{op} ({', '.join(dtypes)})" for op, dtypes in sorted(ops.items()))
        lines.append(f"{path}: {named}")
    return lines


def _unplanned(paths: Sequence[Mapping[str, Any]]) -> Iterator[status_text.Line]:
    """What runs on another path than planned, one line for each reason."""
    by_reason: dict[tuple[str, str, str], set[str]] = {}
    for each in paths:
        if each["path"] != each["planned"]:
            by_reason.setdefault((each["path"], each["planned"], each["reason"]), set()).add(each["op"])
    for (path, planned, reason), ops in sorted(by_reason.items()):
        text = f"{', '.join(sorted(ops))} run on {path} instead of {planned}: {reason or 'no reason given'}"
        yield status_text.row("SLOW", text, "yellow")
