"""The life of one pod: files, process, probes, restarts with back-off, and an orderly end."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import errno
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import pod_status, probes, process, translate

Report = Callable[[interface.Object, str, str, str], None]
"""(about, type, reason, message): an event."""

_LOG_TAIL_BYTES = 8192
_MESSAGE_BYTES = 2048
"""As a kubelet cuts termination messages."""
_DEFAULT_GRACE_SECONDS = 30.0
_MOUNT_RETRY_SECONDS = 2.0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((translate.HOST, 0))
        return int(probe.getsockname()[1])


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What pods of this machine need of it; tests give stand-ins."""

    launcher: process.Launcher
    prober: probes.Prober
    clock: clock_.Clock
    settings: settings_.LocalSettings
    environment: Mapping[str, str]
    programs: Mapping[str, tuple[str, ...]]
    free_port: Callable[[], int] = free_port


class PodRunner:
    """Runs one pod's first container until told to stop. `publish` is called with every new pod status; the output of
    all runs goes to `log`."""

    def __init__(
        self,
        pod: interface.Object,
        folder: Path,
        log: Path,
        machine: Machine,
        lookup: translate.Lookup,
        publish: Callable[[dict[str, Any]], None],
        report: Report,
    ) -> None:
        self._pod = pod
        self._container: Mapping[str, Any] = pod["spec"]["containers"][0]
        self._folder = folder
        self._log = log
        self._machine = machine
        self._lookup = lookup
        self._publish = publish
        self._report = report
        self._state = pod_status.State()
        self._stopping = asyncio.Event()
        self._mount_again = asyncio.Event()
        self._files_behind = ""
        """Why the mounted files are older than what they come from; empty when they are not."""
        self._mounted: dict[str, Path] = {}
        self._port = 0

    def stop(self) -> None:
        """Begin to end: `run` returns once the process is gone."""
        self._stopping.set()

    def refresh(self) -> None:
        """A ConfigMap or Secret has changed: bring the mounted files up to date, as a kubelet does.

        Where that fails, because a Secret is gone or the disk is full, the process goes on with the files it has, and
        every probe tries again.
        """
        self._mount_again.set()
        if self._state.running_since is None:
            return
        try:
            self._write_files()
        except (translate.CannotRun, OSError) as error:
            problem = error if isinstance(error, translate.CannotRun) else self._disk_problem(error)
            if str(problem) != self._files_behind:
                self._report(self._pod, "Warning", "FailedMount", str(problem))
            self._files_behind = str(problem)
        else:
            self._files_behind = ""

    async def run(self) -> None:
        """Until `stop`: start the process, watch it, start it again."""
        self._set(self._state)
        while not self._stopping.is_set():
            started = self._machine.clock.monotonic()
            try:
                command, checks = self._prepare()
                ended = await self._one_run(command, checks)
            except translate.CannotRun as error:
                await self._wait_for_parts(error)
                continue
            except OSError as error:  # full disk, no processes left, a folder that may not be written
                await self._wait_for_parts(self._disk_problem(error))
                continue
            if self._stopping.is_set():
                return
            long_enough = self._machine.clock.monotonic() - started >= self._machine.settings.restart_reset_seconds
            await self._back_off(ended, reset=long_enough)

    def _prepare(self) -> tuple[translate.Command, tuple[probes.Probe | None, ...]]:
        """Files written, command and probes known. Raises `CannotRun`."""
        if len(self._pod["spec"]["containers"]) != 1 or self._pod["spec"].get("initContainers"):
            raise translate.CannotRun("a pod of this machine has exactly one container and no init containers")
        fields = ("startupProbe", "readinessProbe", "livenessProbe")
        checks = tuple(probes.parse(self._container, field) for field in fields)
        self._port = self._machine.free_port()
        self._mounted = translate.mounts(self._pod, self._container, self._folder)
        self._write_files()
        command = translate.command(
            self._pod, self._container, self._mounted, self._port, self._machine.environment, self._machine.programs
        )
        return command, checks

    def _write_files(self) -> None:
        for folder in (self._folder, self._log.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for volume in self._pod["spec"].get("volumes") or ():
            if "hostPath" not in volume:
                (self._folder / "volumes" / volume["name"]).mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, data in translate.files(self._pod, self._folder, self._lookup).items():
            _replace(path, translate.config_text(path, data, self._mounted, self._port))

    def _disk_problem(self, error: OSError) -> translate.CannotRun:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = ". Free some space there; it is tried again every few seconds" if full else ""
        return translate.CannotRun(f"{self._folder}: {error.strerror}{remedy}", "RunContainerError")

    async def _wait_for_parts(self, problem: translate.CannotRun) -> None:
        if self._state.waiting_message != str(problem):
            self._report(self._pod, "Warning", problem.reason, str(problem))
        self._set(self._state.waiting(problem.reason, str(problem)))
        self._mount_again.clear()
        stopping = asyncio.ensure_future(self._stopping.wait())
        again = asyncio.ensure_future(clock_.wait(self._machine.clock, self._mount_again, _MOUNT_RETRY_SECONDS))
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(stopping, again)

    async def _one_run(self, command: translate.Command, checks: tuple[probes.Probe | None, ...]) -> pod_status.Ended:
        """One process from start to end, whoever ends it."""
        clock = self._machine.clock
        since = clock.now()
        mark = log_mark(self._log)
        child = await self._machine.launcher.start(command.argv, command.env, self._folder, self._log)
        inside = translate.container_port(self._container)
        self._set(self._state.running(since, child.pid, {inside: self._port} if inside is not None else {}))
        exited = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        unhealthy = asyncio.ensure_future(self._probe(checks))
        try:
            waiting: set[asyncio.Future[Any]] = {exited, stopping, unhealthy}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if unhealthy.done() and not exited.done():
                self._report(self._pod, "Warning", "Unhealthy", f"{unhealthy.result()}; the process is restarted")
            await _cancel(unhealthy)  # or a probe in flight would call a pod ready that is ending
            if not exited.done():
                await self._end(child, exited)
            return self._ended(since, mark, exited.result())
        finally:
            await _cancel(stopping, unhealthy)
            if not exited.done():  # this task was cancelled
                child.kill()
                await exited

    async def _end(self, child: process.Process, exited: asyncio.Future[int]) -> None:
        """SIGTERM, the pod's grace period, then SIGKILL to all of it."""
        self._set(dataclasses.replace(self._state, ready=False))
        grace = float(self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))
        child.terminate()
        timer = asyncio.ensure_future(self._machine.clock.sleep(grace))
        either: set[asyncio.Future[Any]] = {exited, timer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        if not exited.done():
            self._report(self._pod, "Warning", "Killed", f"did not end within {grace:g} s of SIGTERM")
            child.kill()
            await exited

    async def _probe(self, checks: tuple[probes.Probe | None, ...]) -> str:
        """Probe until the pod must be restarted; returns why."""
        startup, readiness, liveness = checks
        if startup is not None and not await self._until_started(startup):
            return f"{startup.path} did not answer within {startup.failure_seconds:g} s of the start"
        now = self._machine.clock.monotonic()
        ready, alive = probes.Verdict(readiness, now), probes.Verdict(liveness, now)
        alive.observe(True, now)
        while True:
            if self._files_behind:
                self.refresh()
            for verdict, check in ((ready, readiness), (alive, liveness)):
                if check is not None:
                    success = await self._ask(check)
                    verdict.observe(success, self._machine.clock.monotonic())
            self._set(dataclasses.replace(self._state, started=True, ready=ready.passing))
            if liveness is not None and alive.failed(self._machine.clock.monotonic()):
                return f"{liveness.path} failed for {liveness.failure_seconds:g} s"
            await self._machine.clock.sleep(self._pause(readiness, liveness))

    async def _until_started(self, startup: probes.Probe) -> bool:
        verdict = probes.Verdict(startup, self._machine.clock.monotonic())
        while not verdict.passing:
            await self._machine.clock.sleep(self._pause(startup))
            verdict.observe(await self._ask(startup), self._machine.clock.monotonic())
            if verdict.failed(self._machine.clock.monotonic()):
                return False
        return True

    def _pause(self, *checks: probes.Probe | None) -> float:
        periods = [check.period_seconds for check in checks if check is not None]
        return min([self._machine.settings.probe_seconds, *periods])

    async def _ask(self, check: probes.Probe) -> bool:
        url = f"{check.scheme}://{translate.HOST}:{self._port}{check.path}"
        return await self._machine.prober(url, check.timeout_seconds)

    def _ended(self, since: datetime.datetime, mark: LogMark, code: int) -> pod_status.Ended:
        return pod_status.Ended(code, log_tail(self._log, mark), since, self._machine.clock.now())

    async def _back_off(self, ended: pod_status.Ended, *, reset: bool) -> None:
        restarts = 0 if reset else self._state.restarts
        settings = self._machine.settings
        delay = min(settings.restart_backoff_seconds * 2.0 ** min(restarts, 30), settings.max_restart_backoff_seconds)
        last_line = ended.message.rsplit("\n", 1)[-1] or "no output"
        how = f"exit code {ended.exit_code}: {last_line}"
        message = f"back-off {delay:g} s, restarting; {how}"
        self._report(self._pod, "Warning", "BackOff", f"the process ended with {how}")
        waiting = self._state.waiting(pod_status.BACK_OFF, message)
        self._set(dataclasses.replace(waiting, last=ended, restarts=self._state.restarts + 1))
        await clock_.wait(self._machine.clock, self._stopping, delay)

    def _set(self, state: pod_status.State) -> None:
        self._state = state
        status = pod_status.build(self._pod, state, self._machine.clock.now())
        self._pod = {**self._pod, "status": status}
        self._publish(status)


LogMark = tuple[int, int]
"""A place in a log: the file's inode and how many bytes it had."""


def log_mark(log: Path) -> LogMark:
    """The end of the log now, so that the next run's output can be told from the last run's."""
    try:
        stat = log.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_ino, stat.st_size


def log_tail(log: Path, mark: LogMark = (0, 0)) -> str:
    """The last lines of a log after `mark`, at most 2048 bytes, as a kubelet takes them for a termination message."""
    inode, begin = mark
    try:
        with log.open("rb") as file:
            if os.fstat(file.fileno()).st_ino != inode:  # it has started over since
                begin = 0
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            text = file.read()
    except FileNotFoundError:
        return ""
    return text.strip()[-_MESSAGE_BYTES:].decode(errors="replace")


def _replace(path: Path, data: bytes) -> None:
    """Write so that a reader sees the old or the new file, never half of one. Only we may read it: it may hold keys."""
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.new")
    half.touch(mode=0o600)
    half.write_bytes(data)
    half.replace(path)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel and let them finish; one that has finished already is left as it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
