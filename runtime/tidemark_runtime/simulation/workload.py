"""WORKLOAD: who sends what, when, and the engine's settings under which it is served.

seed: 1
durationSeconds: 600        # requests that come later are not sent; what is here is served to its end
settings:                   # as in an engine's configuration file: model.maxContextTokens, kvCache, scheduler
  scheduler: {maxNumSeqs: 256}
classes:
  chat:
    arrivals: {poisson: {perSecond: 4}}
    promptTokens: {lognormal: {median: 300, sigma: 1.0, min: 16, max: 8000}}
    outputTokens: {lognormal: {median: 150, sigma: 0.8, min: 1, max: 1000}}
    maxTokens: 1024         # what the client asks for at most; default: just what it gets
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.simulation import arrivals, distributions, fields

KEY = "WORKLOAD"
EXAMPLE = "examples/workloads/mixed.yaml"

REQUESTS_MOST = 5_000_000
"""That all classes send together, as far as the file says: each is kept until the report."""

_SPECULATIVE = "speculative"
_SECTIONS = {"model": ("maxContextTokens",), "kvCache": None, "scheduler": None}
"""Settings that a simulation heeds; None: all of the section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """What a client does when it is told to come back later (429)."""

    most: int
    backoff_seconds: float
    factor: float
    """Each wait is so many times the one before."""
    heeds_retry_after: bool
    """Waits at least as long as the answer's `Retry-After` says."""
    marked: bool
    """Says in its header that it is a retry, as the OpenAI clients do."""

    def wait_seconds(self, num_tries: int, retry_after_seconds: float) -> float:
        """Before the next try, after `num_tries`."""
        wait = self.backoff_seconds * self.factor ** (num_tries - 1)
        return max(wait, retry_after_seconds) if self.heeds_retry_after else wait


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests of one kind."""

    name: str
    arrivals: arrivals.Arrivals
    prompt_tokens: distributions.Distribution
    output_tokens: distributions.Distribution
    """What the model would say; cut at `max_tokens`."""
    max_tokens: distributions.Distribution | None
    """None: the client knows the length beforehand."""
    shared_tokens: int
    """The first so many tokens of each prompt are the same in the whole class: a system prompt."""
    priority: int
    tenants: int
    """The class's requests come from so many API keys in turn."""
    retries: Retries
    deadline_seconds: float | None
    start_seconds: float
    end_seconds: float | None
    num_requests: int | None
    are_retries: bool
    """Each request says that it is a retry of one that we have not seen: a storm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    seed: int
    duration_seconds: float | None
    """When no new requests come any more. None: when every class has sent its number."""
    classes: tuple[RequestClass, ...]
    settings: config.EngineConfig


def load(path: Path, *, seed: int | None = None, overrides: Mapping[str, str] | None = None) -> Workload:
    """Read a file; `overrides`: settings that win over the file's, by their key, `scheduler.maxNumSeqs`.

    Raises `ConfigError` with every problem.
    """
    values = fields.read_mapping(path, KEY, EXAMPLE)
    return parse(values, path.stem, seed=seed, overrides=overrides)


def parse(
    values: Mapping[str, Any], name: str, *, seed: int | None = None, overrides: Mapping[str, str] | None = None
) -> Workload:
    """As `load`, of what a file holds."""
    return fields.parsed(lambda problems: _parse(fields.Fields("", values, problems), name, seed, overrides or {}))


def _parse(found: fields.Fields, name: str, seed: int | None, overrides: Mapping[str, str]) -> Workload:
    settings = _settings(found, overrides)
    duration = found.number("durationSeconds", above=0.0) if found.has("durationSeconds") else None
    if seed is not None and seed < 0:
        found.problems.append(errors.Problem("--seed", seed, "a whole number of at least 0"))
    workload = Workload(
        name=found.text("name", name),
        seed=found.whole("seed", 0) if seed is None else seed,
        duration_seconds=duration,
        classes=_classes(found, duration),
        settings=settings,
    )
    found.raw("seed")
    found.close()
    _check_number(found, workload)
    return workload


def _check_number(found: fields.Fields, load: Workload) -> None:
    """A run of more would take days or all of the memory, and say no more than a shorter one."""
    if found.problems:
        return
    numbers = {kind.name: _num_expected(kind, load.duration_seconds) for kind in load.classes}
    total = sum(numbers.values())
    if total > REQUESTS_MOST:
        largest = max(numbers, key=lambda name: numbers[name])
        seen = errors.Seen(f"{total:,.0f} requests" if total < 1e15 else f"{total:.3g} requests")
        found.problem(
            "classes",
            seen,
            f"at most {REQUESTS_MOST:,} in all",
            f"Most of them are of the class {largest}: lower its rate, durationSeconds or its endSeconds, or set its "
            "requests.",
        )


def _num_expected(kind: RequestClass, duration: float | None) -> float:
    """Without tries that are repeated, and of users only what is known beforehand."""
    ends = [end for end in (kind.end_seconds, duration) if end is not None]
    seconds = max(0.0, min(ends, default=math.inf) - kind.start_seconds)
    expected = kind.arrivals.expected(seconds)
    return expected if kind.num_requests is None else min(expected, kind.num_requests)


def _classes(found: fields.Fields, duration: float | None) -> tuple[RequestClass, ...]:
    part = found.part("classes", "a mapping: name of a class -> its requests")
    if part is None or not part.names():
        found.problem("classes", found.raw("classes"), "a mapping: name of a class -> its requests, at least one")
        return ()
    classes = []
    for name in part.names():
        body = part.part(name)
        if body is None:
            part.problem(name, None, "a mapping with arrivals, promptTokens and outputTokens")
        else:
            classes.append(_class(body, name, duration))
    return tuple(classes)


def _class(body: fields.Fields, name: str, duration: float | None) -> RequestClass:
    arrivals_ = arrivals.parse(body)
    found = RequestClass(
        name=name,
        arrivals=arrivals_,
        prompt_tokens=distributions.parse_tokens(body, "promptTokens"),
        output_tokens=distributions.parse_tokens(body, "outputTokens"),
        max_tokens=distributions.parse_tokens(body, "maxTokens") if body.has("maxTokens") else None,
        shared_tokens=body.whole("sharedPromptTokens", 0),
        priority=body.whole("priority", 0, least=config.PRIORITY_MIN, most=config.PRIORITY_MAX),
        tenants=body.whole("tenants", 1, least=1),
        retries=_retries(body),
        deadline_seconds=body.number("deadlineSeconds", above=0.0) if body.has("deadlineSeconds") else None,
        start_seconds=body.number("startSeconds", 0.0),
        end_seconds=body.number("endSeconds", above=0.0) if body.has("endSeconds") else None,
        num_requests=body.whole("requests", least=1) if body.has("requests") else None,
        are_retries=body.flag("areRetries", False),
    )
    ends = duration is not None or found.end_seconds is not None or found.num_requests is not None
    if not ends and not isinstance(arrivals_, arrivals.At):
        body.problem("requests", None, "a number of requests", "Or set durationSeconds, or the class's endSeconds.")
    _check_class(body, found, duration)
    body.close()
    return found


def _check_class(body: fields.Fields, found: RequestClass, duration: float | None) -> None:
    """What is wrong with values that are right one by one."""
    remedy = "No request would be sent otherwise."
    if found.end_seconds is not None and found.end_seconds <= found.start_seconds:
        body.problem("endSeconds", found.end_seconds, f"more than startSeconds, {found.start_seconds:g}", remedy)
    if duration is not None and found.start_seconds >= duration > 0:
        body.problem("startSeconds", found.start_seconds, f"less than durationSeconds, {duration:g}", remedy)
    if found.shared_tokens > found.prompt_tokens.most:
        body.problem(
            "sharedPromptTokens",
            found.shared_tokens,
            f"at most the longest of promptTokens, {found.prompt_tokens.most:.0f}",
            "They are the first ones of each prompt. Lower them, or make prompts longer.",
        )


def _retries(body: fields.Fields) -> Retries:
    part = body.part("retries")
    if part is None:
        return Retries(most=0, backoff_seconds=0.0, factor=1.0, heeds_retry_after=True, marked=True)
    retries = Retries(
        most=part.whole("most", least=0, most=_RETRIES_MOST),
        backoff_seconds=part.number("backoffSeconds", 0.5, above=0.0, most=_BACKOFF_SECONDS_MOST),
        factor=part.number("factor", 2.0, least=1.0, most=_FACTOR_MOST),
        heeds_retry_after=part.flag("heedsRetryAfter", True),
        marked=part.flag("marked", True),
    )
    part.close()
    return retries


def _settings(found: fields.Fields, overrides: Mapping[str, str]) -> config.EngineConfig:
    part = found.part("settings", "a mapping of sections such as `scheduler: {maxNumSeqs: 64}`")
    sections: dict[str, dict[str, Any]] = {}
    if part is not None:
        for section in part.names():
            _take_section(part, section, sections)
        part.close()
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        if section == _SPECULATIVE:
            found.problems.append(no_guesses(f"--set {key}", value))
        elif not name or not _is_heeded(section, name):
            found.problems.append(errors.Problem(f"--set {key}", value, _HEEDED, "Write --set SECTION.KEY=VALUE."))
        else:
            sections.setdefault(section, {})[name] = value
    try:
        return config_parsing.parse(sections, textual=overrides)
    except errors.ConfigError as error:
        for problem in error.problems:
            key = f"--set {problem.key}" if problem.key in overrides else f"settings.{problem.key}"
            found.problems.append(errors.Problem(key, problem.seen, problem.expected, problem.remedy))
        return config.EngineConfig()


def _take_section(part: fields.Fields, section: str, sections: dict[str, dict[str, Any]]) -> None:
    if section == _SPECULATIVE:
        found = part.raw(section)
        part.problems.append(no_guesses(f"settings.{section}", found))
        return
    if section not in _SECTIONS:
        part.raw(section)
        part.problem(section, "this section", _HEEDED, "Others have no effect in a simulation. Remove it.")
        return
    body = part.part(section)
    if body is None:
        return
    sections[section] = {}
    for name in body.names():
        if _is_heeded(section, name):
            sections[section][name] = body.raw(name)
        else:
            body.raw(name)
            body.problem(name, "this key", _HEEDED, "Others have no effect in a simulation. Remove it.")


def no_guesses(key: str, seen: Any) -> errors.Problem:
    """Speculative decoding is asked for, by `key`."""
    expected = "none: made-up tokens repeat nothing, and nobody can say how many guesses would be right"
    remedy = "Remove the section speculative. What it gains, an engine says: docs/operations/speculative.md"
    return errors.Problem(key, seen, expected, remedy)


def _is_heeded(section: str, name: str) -> bool:
    if section not in _SECTIONS:
        return False
    names = _SECTIONS[section]
    return names is None or name in names


_RETRIES_MOST, _BACKOFF_SECONDS_MOST, _FACTOR_MOST = 100, 86_400.0, 100.0
"""Far more than any client does; together they are still a number of seconds."""

_HEEDED = "a setting of kvCache or scheduler, or model.maxContextTokens"
