"""The whole test: look at the server, measure how long words are, then one level after the other, up to the knee."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from tidemark_runtime.contract import http as paths
from tidemark_runtime.loadtest import (
    check,
    driver,
    exchange,
    figures,
    knee,
    levels,
    prompts,
    results,
    server_side,
    target,
)
from tidemark_runtime.simulation import senders

Progress = Callable[[str, float, int], None]
"""What is being done, seconds of it so far, and answers so far."""

_ALMOST = 0.02
"""Lengths that differ from the wanted ones by less than that share are as wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a user asked for."""

    url: str
    endpoint: target.Endpoint
    model: str | None
    keys: tuple[str, ...]
    levels: tuple[levels.Level, ...]
    stops_at_knee: bool
    """A ramp: levels past the knee are not run."""
    rule: knee.Rule
    checks: bool
    timeout_seconds: float
    """Of one try."""
    seed: int
    salt: str
    """Of the texts of this run."""
    describes: str
    """The workload, in words."""


@dataclass(slots=True)
class Session:
    """One run. What it has found so far can be asked for at any time, also after it was cancelled."""

    plan: Plan
    http: httpx.AsyncClient
    progress: Progress
    found: list[figures.LevelFigures] = field(default_factory=list)
    interrupted: bool = False
    _facts: target.Facts | None = None
    _prompts: prompts.Prompts | None = None
    _alone: Sequence[str] = ()

    async def run(self) -> None:
        """Raises `target.NoAnswer` where the server cannot be tested at all, `ConfigError`."""
        try:
            await self._prepare()
            for index, level in enumerate(self.plan.levels):
                await self._measure(index, level)
                if self.plan.stops_at_knee and knee.is_past(self.plan.rule, self.found):
                    break
        except asyncio.CancelledError:
            self.interrupted = True
            raise

    def result(self) -> results.Result:
        """Of what is there so far."""
        plan, whole = self.plan, [level for level in self.found if level.whole]
        facts = self._facts or target.Facts(plan.model or "", False, False)
        about = results.About(
            url=plan.url,
            model=facts.model,
            server_version=facts.version,
            endpoint=str(plan.endpoint),
            workload=plan.describes,
            seed=plan.seed,
            prompts=self._prompts.measure.how if self._prompts is not None else "",
            notes=tuple(self._notes(facts)),
        )
        bend = knee.find(plan.rule, whole) if len(plan.levels) > 1 and whole else None
        return results.Result(about=about, levels=tuple(self.found), knee=bend, interrupted=self.interrupted)

    async def _prepare(self) -> None:
        plan = self.plan
        key = self._key(0)
        self.progress("asking the server", 0.0, 0)
        self._facts = await target.look(self.http, plan.endpoint, plan.model, key)
        self.progress("measuring words", 0.0, 0)
        measured = await prompts.measure(self.http, plan.endpoint, self._facts.model, key)
        self._prompts = prompts.Prompts(measured, plan.salt)
        if plan.checks:
            self.progress("answers alone", 0.0, 0)
            self._alone = await check.alone(self._ask_extra, self._questions())

    async def _measure(self, index: int, level: levels.Level) -> None:
        watch = server_side.Watch(self.http)
        checked: list[check.CheckFigures] = []

        async def compare() -> None:
            measured_beside = level.window is None
            found = await check.under_load(self._ask_extra, self._questions(), self._alone, at_once=not measured_beside)
            checked.append(found)

        async def send(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
            wire = self._wire(index, request)
            await exchange.ask(self.http, wire, clock, into, timeout_seconds=self.plan.timeout_seconds)

        run = driver.Driver(
            level,
            send,
            companion=compare if self.plan.checks else None,
            progress=lambda seconds, answers: self.progress(level.name, seconds, answers),
        )
        watching = asyncio.get_running_loop().create_task(watch.watch(run.begun, run.over))
        server = None
        try:
            await run.run()
            server = await watching
        finally:
            watching.cancel()
            self.found.append(figures.make(level, run.record, server, checked[0] if checked else None))

    def _wire(self, index: int, request: senders.Request) -> exchange.Wire:
        """What a request of the level with this index is on the wire."""
        plan, facts, made = self.plan, self._facts, self._prompts
        if facts is None or made is None:
            raise RuntimeError("levels are measured after the server was asked")
        kind = request.kind
        body: dict[str, Any] = {
            "model": facts.model,
            **target.spoken(plan.endpoint, made.text(index, request)),
            "max_tokens": min(request.num_output_tokens, request.max_tokens),
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if facts.ignores_eos:
            body["ignore_eos"] = True
        if kind.deadline_seconds is not None and facts.version:
            body["deadline_seconds"] = kind.deadline_seconds
        found = target.headers(self._key(int(request.tenant.rpartition("-")[2])))
        if kind.priority and facts.version:
            found[paths.PRIORITY_HEADER] = str(kind.priority)
        num_before = request.num_tries - 1 if kind.retries.marked else 0
        if kind.are_retries or num_before:
            found[paths.RETRY_COUNT_HEADER] = str(max(1, num_before))
        return exchange.Wire(plan.endpoint.path, msgspec.json.encode(body), found)

    async def _ask_extra(self, body: bytes) -> exchange.Exchange:
        """A request that is not the load's."""
        found = exchange.Exchange()
        wire = exchange.Wire(self.plan.endpoint.path, body, target.headers(self._key(0)))
        clock = asyncio.get_running_loop().time
        await exchange.ask(self.http, wire, clock, found, timeout_seconds=self.plan.timeout_seconds)
        return found

    def _questions(self) -> list[bytes]:
        if self._facts is None:
            raise RuntimeError("answers are checked after the server was asked")
        return [check.body(self._facts, self.plan.endpoint, question) for question in check.QUESTIONS]

    def _key(self, tenant: int) -> str | None:
        keys = self.plan.keys
        return keys[tenant % len(keys)] if keys else None

    def _notes(self, facts: target.Facts) -> list[str]:
        plan = self.plan
        notes = []
        if target.is_local(plan.url):
            notes.append("client and server share this machine: the client's own work takes some of the server's cores")
        if self._facts is not None and not facts.ignores_eos:
            notes.append("the server does not take ignore_eos: answers end where the model ends them")
        if self._facts is not None and not facts.says_usage:
            notes.append("the server does not say usage: tokens are counted as events of the stream")
        tenants = max(kind.tenants for level in plan.levels for kind in level.load.classes)
        if tenants > max(1, len(plan.keys)):
            notes.append(f"{tenants} tenants share {len(plan.keys)} API keys: the server cannot tell them apart")
        extras = [
            kind for level in plan.levels for kind in level.load.classes if kind.priority or kind.deadline_seconds
        ]
        if extras and self._facts is not None and not facts.version:
            notes.append("priority and deadline were not sent: only servers of ours understand them")
        if plan.levels[0].kind is levels.Kind.SCALE:
            notes.append("settings of the workload file are the simulation's; the server has its own")
        return [*notes, *self._off_lengths(), *self._from_cache()]

    def _off_lengths(self) -> list[str]:
        """Where prompts or answers were not as long as wanted."""
        notes = []
        for what, got, wanted in (
            ("prompt", "prompt_tokens", "wanted_prompt_tokens"),
            ("output", "output_tokens", "wanted_output_tokens"),
        ):
            have = sum(getattr(level.total, got) for level in self.found)
            want = sum(getattr(level.total, wanted) for level in self.found)
            if want and abs(have / want - 1) > _ALMOST:
                notes.append(f"{have:,} {what} tokens were counted by the server, {want:,} were wanted")
        return notes

    def _from_cache(self) -> list[str]:
        """Where the server's prefix cache found more than the workload says is alike."""
        prompt = sum(level.total.prompt_tokens for level in self.found)
        cached = sum(level.total.cached_tokens for level in self.found)
        shared = max(kind.shared_tokens for level in self.plan.levels for kind in level.load.classes)
        if shared or not prompt or cached / prompt <= _ALMOST:
            return []
        return [
            f"{cached / prompt:.0%} of the prompt tokens were found in the server's prefix cache: every prompt begins "
            "with the same chat template. Longer prompts, or --endpoint completions, have less of that"
        ]
