"""Real processes under the launch script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark_operator.cluster.local import process

FAMILY = "import os, subprocess, sys, time; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); "


async def start(folder: Path, program: str, log_bytes: int = 1 << 20) -> process.SystemProcess:
    started = await process.SystemLauncher(log_bytes).start(
        [sys.executable, "-c", program], {"PATH": os.environ["PATH"]}, folder, folder / "log"
    )
    assert isinstance(started, process.SystemProcess)
    return started


def lines(log: Path) -> list[str]:
    """Whole lines so far."""
    return [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")] if log.exists() else []


async def first_line(log: Path) -> str:
    while not lines(log):
        await asyncio.sleep(0.01)
    return lines(log)[0].strip()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
async def test_exit_codes_are_a_containers(tmp_path: Path, program: str, code: int) -> None:
    started = await start(tmp_path, program)
    assert await started.wait() == code
    assert await started.wait() == code


async def test_a_command_that_cannot_be_started_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = await process.SystemLauncher(1000).start(["/no/such/program"], {}, tmp_path, log)
    assert started.pid is None
    assert await started.wait() == 127
    assert log.read_text() == "cannot start /no/such/program: No such file or directory\n"


async def test_terminate_reaches_the_command_and_its_last_words_the_log(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "def end(*_): print('bye', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True); print('problem', file=sys.stderr, flush=True); time.sleep(600)\n"
    )
    started = await start(tmp_path, program)
    await first_line(tmp_path / "log")
    started.terminate()
    assert await started.wait() == 3
    assert (tmp_path / "log").read_text() == "up\nproblem\nbye\n"


async def test_kill_ends_the_whole_family(tmp_path: Path, gone: Callable[..., None]) -> None:
    started = await start(tmp_path, f"{FAMILY} time.sleep(600)")
    child = int(await first_line(tmp_path / "log"))
    started.kill()
    assert await started.wait() == 137
    gone(started.pid, child)


async def test_what_a_command_leaves_behind_is_ended(tmp_path: Path, gone: Callable[..., None]) -> None:
    started = await start(tmp_path, FAMILY)
    child = int(await first_line(tmp_path / "log"))
    assert await started.wait() == 0
    gone(child)


async def test_a_killed_launch_script_takes_everything_along(tmp_path: Path, gone: Callable[..., None]) -> None:
    started = await start(tmp_path, f"{FAMILY} time.sleep(600)")
    child = int(await first_line(tmp_path / "log"))
    assert started.pid is not None
    script = parent_of(started.pid)
    os.kill(script, signal.SIGKILL)
    assert await started.wait() == 137
    gone(started.pid, child)


async def test_a_log_is_bounded(tmp_path: Path) -> None:
    started = await start(tmp_path, "for i in range(20000): print(f'line {i}')", log_bytes=100_000)
    assert await started.wait() == 0
    now, before = tmp_path / "log", tmp_path / "log.1"
    assert now.stat().st_size <= 100_000
    assert before.stat().st_size <= 100_000
    assert now.read_text().endswith("line 19999\n")
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]


async def test_a_command_that_never_stops_writing_can_be_ended(tmp_path: Path) -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    for end, code in ((process.SystemProcess.terminate, 143), (process.SystemProcess.kill, 137)):
        started = await start(tmp_path, endless, log_bytes=1000)
        while not (tmp_path / "log").exists() or not (tmp_path / "log").stat().st_size:
            await asyncio.sleep(0.01)
        end(started)
        assert await asyncio.wait_for(started.wait(), 10) == code
