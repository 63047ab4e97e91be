"""The life of a pod, with made-up processes and time that only passes when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import settings
from tidemark_operator.cluster.local import pod_runner, pod_status

GRACE = 10


class MadeProcess:
    """Ends when told to: by the test, by SIGTERM unless it is stubborn, by SIGKILL."""

    def __init__(self, number: int, world: World) -> None:
        self.pid: int | None = 1000 + number
        self.signals: list[str] = []
        self._world = world
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def terminate(self) -> None:
        self.signals.append("TERM")
        if not self._world.stubborn:
            self.end(0)

    def kill(self) -> None:
        self.signals.append("KILL")
        self.end(137)


class World:
    """Launcher, prober, objects and everything that was published, in one."""

    def __init__(self, folder: Path, clock: Any) -> None:
        self.clock = clock
        self.started: list[MadeProcess] = []
        self.commands: list[tuple[str, ...]] = []
        self.healthy = {"/live": True, "/ready": True}
        self.stubborn = False
        self.start_error: OSError | None = None
        self.objects: dict[tuple[str, str], dict[str, Any]] = {("ConfigMap", "c"): {"data": {"engine.yaml": "{}"}}}
        self.statuses: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.folder = folder
        machine = pod_runner.Machine(
            launcher=self,
            prober=self,
            clock=clock,
            settings=settings.LocalSettings(),
            environment={},
            programs={"tidemark": ("/bin/tidemark",)},
            free_port=lambda: 4711,
        )
        self.runner = pod_runner.PodRunner(
            pod(),
            folder,
            folder / "log",
            machine,
            lambda kind, name: self.objects.get((kind, name)),
            self.statuses.append,
            lambda about, type_, reason, message: self.events.append((reason, message)),
        )

    async def start(self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> MadeProcess:
        if self.start_error is not None:
            raise self.start_error
        self.commands.append(tuple(command))
        self.started.append(MadeProcess(len(self.started), self))
        return self.started[-1]

    async def __call__(self, url: str, timeout_seconds: float) -> bool:
        assert url.startswith("http://127.0.0.1:4711/")
        return self.healthy["/" + url.rsplit("/", 1)[1]]

    @property
    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = self.statuses[-1]["containerStatuses"][0]
        return found

    @property
    def ready(self) -> bool:
        return pod_status.is_ready({"metadata": {}, "status": self.statuses[-1]})


def pod() -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": period, "failureThreshold": failures}

    container = {
        "name": "engine",
        "image": "local",
        "command": ["tidemark"],
        "args": ["serve", "--config", "/etc/tidemark/engine.yaml"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/tidemark"}],
        "startupProbe": probe("/live", 2, 30),
        "readinessProbe": probe("/ready", 2, 1),
        "livenessProbe": probe("/live", 10, 3),
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "c"}}],
        "terminationGracePeriodSeconds": GRACE,
    }
    metadata = {"name": "p", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
async def world(tmp_path: Path, clock: Any) -> AsyncIterator[World]:
    made = World(tmp_path / "p", clock)
    task = asyncio.ensure_future(made.runner.run())
    yield made
    made.runner.stop()
    await clock.advance(2 * GRACE)
    assert task.done()
    await task


async def test_a_pod_becomes_ready_and_its_files_are_there(world: World) -> None:
    await world.clock.advance(1)
    assert world.ready
    assert world.container["state"] == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    assert world.container["containerID"] == "process://1000"
    config = world.folder / "volumes" / "config" / "engine.yaml"
    assert world.commands == [("/bin/tidemark", "serve", "--config", str(config))]
    assert "port: 4711" in config.read_text()
    assert config.stat().st_mode & 0o077 == 0
    assert pod_status.address({"status": world.statuses[-1]}, 8000) == ("127.0.0.1", 4711)


async def test_started_is_not_ready(world: World) -> None:
    world.healthy["/ready"] = False
    await world.clock.advance(20)
    assert world.container["started"]
    assert not world.ready
    world.healthy["/ready"] = True
    await world.clock.advance(1)
    assert world.ready


async def test_a_crash_is_told_with_code_and_last_line_and_restarted_with_growing_waits(world: World) -> None:
    delays = []
    for _ in range(4):
        await world.clock.advance(0.875)
        with (world.folder / "log").open("a") as log:
            log.write("loading\nModelNotFound: no such model\n")
        world.started[-1].end(1)
        await world.clock.settle()
        began, number = world.clock.monotonic(), len(world.started)
        assert world.container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert "exit code 1: ModelNotFound: no such model" in world.container["state"]["waiting"]["message"]
        assert world.container["lastState"]["terminated"]["exitCode"] == 1
        while len(world.started) == number:
            await world.clock.advance(0.5)
        delays.append(world.clock.monotonic() - began)
    assert delays == [1, 2, 4, 8]
    assert world.container["restartCount"] == 4
    assert world.events[0] == ("BackOff", "the process ended with exit code 1: ModelNotFound: no such model")


async def test_a_long_run_is_forgiven(world: World) -> None:
    for _ in range(3):
        await world.clock.advance(5)
        world.started[-1].end(1)
    await world.clock.advance(300)
    number = len(world.started)
    world.started[-1].end(1)
    await world.clock.advance(1)
    assert len(world.started) == number + 1


async def test_a_pod_that_does_not_come_up_is_restarted(world: World) -> None:
    world.healthy["/live"] = False
    await world.clock.advance(59)
    assert len(world.started) == 1
    await world.clock.advance(5)
    assert world.started[0].signals == ["TERM"]
    assert len(world.started) == 2
    assert world.events[0][0] == "Unhealthy"
    assert "/live did not answer within 60 s" in world.events[0][1]


async def test_a_stalled_engine_is_restarted(world: World) -> None:
    await world.clock.advance(5)
    world.healthy["/live"] = False
    await world.clock.advance(29)
    assert len(world.started) == 1
    await world.clock.advance(5)
    assert len(world.started) == 2
    assert "/live failed for 30 s" in world.events[0][1]


async def test_stop_drains_and_a_stubborn_process_is_killed(world: World) -> None:
    world.stubborn = True
    await world.clock.advance(1)
    world.runner.stop()
    await world.clock.advance(GRACE - 1)
    assert world.started[0].signals == ["TERM"]
    assert not world.ready
    await world.clock.advance(2)
    assert world.started[0].signals == ["TERM", "KILL"]
    assert len(world.started) == 1


async def test_a_missing_config_map_is_named_and_waited_for(tmp_path: Path, clock: Any) -> None:
    world = World(tmp_path / "p", clock)
    del world.objects[("ConfigMap", "c")]
    task = asyncio.ensure_future(world.runner.run())
    await clock.advance(10)
    assert world.container["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert len(world.events) == 1
    world.objects[("ConfigMap", "c")] = {"data": {"engine.yaml": "{}"}}
    world.runner.refresh()
    await clock.advance(1)
    assert world.ready
    world.runner.stop()
    await clock.advance(1)
    await task


async def test_a_full_disk_is_told_and_tried_again(world: World) -> None:
    world.start_error = OSError(28, "No space left on device")
    world.started[0].end(1)
    await world.clock.advance(5)
    assert len(world.started) == 1
    assert "No space left on device" in world.container["state"]["waiting"]["message"]
    world.start_error = None
    await world.clock.advance(3)
    assert world.ready


async def test_a_changed_config_map_reaches_the_running_pod(world: World) -> None:
    await world.clock.advance(1)
    world.objects[("ConfigMap", "c")] = {"data": {"engine.yaml": "model: {name: new}"}}
    world.runner.refresh()
    assert "name: new" in (world.folder / "volumes" / "config" / "engine.yaml").read_text()
    assert len(world.started) == 1


async def test_a_change_that_a_full_disk_keeps_out_comes_when_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.clock.advance(1)
    world.objects[("ConfigMap", "c")] = {"data": {"engine.yaml": "model: {name: new}"}}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(pod_runner, "_replace", full)
        world.runner.refresh()
        await world.clock.advance(3)
    told = [message for reason, message in world.events if reason == "FailedMount"]
    assert len(told) == 1
    assert "No space left on device. Free some space" in told[0]
    assert world.ready
    await world.clock.advance(3)
    assert "name: new" in (world.folder / "volumes" / "config" / "engine.yaml").read_text()
    assert len(world.started) == 1


async def test_cancelling_kills(tmp_path: Path, clock: Any) -> None:
    world = World(tmp_path / "p", clock)
    world.stubborn = True
    task = asyncio.ensure_future(world.runner.run())
    await clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.started[0].signals == ["KILL"]


async def test_transition_times_stay_while_nothing_changes(world: World) -> None:
    await world.clock.advance(1)
    before = world.statuses[-1]
    await world.clock.advance(60)
    assert world.statuses[-1] == before


@pytest.mark.parametrize("text", ["", "one\n", "x" * 10_000 + "\nlast line\n"])
def test_the_tail_of_a_log_is_bounded(tmp_path: Path, text: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    tail = pod_runner.log_tail(log)
    assert len(tail) <= 2048
    assert text.strip().endswith(tail)
    assert pod_runner.log_tail(tmp_path / "none") == ""


async def test_what_an_earlier_run_said_is_not_said_of_this_one(world: World) -> None:
    log = world.folder / "log"
    log.write_text("loading\ntidemark serve: EngineDied: the first end\n")
    world.started[0].end(1)
    await world.clock.advance(3)
    assert world.container["lastState"]["terminated"]["message"].endswith("the first end")
    with log.open("a") as file:
        file.write("loading again\n")
    world.started[1].end(137)
    await world.clock.advance(5)
    assert world.container["lastState"]["terminated"]["message"] == "loading again"


def test_a_log_that_started_over_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a long line of the run before\n")
    mark = pod_runner.log_mark(log)
    assert pod_runner.log_tail(log, mark) == ""
    log.rename(tmp_path / "log.1")
    log.write_text("new\n")
    assert pod_runner.log_tail(log, mark) == "new"
