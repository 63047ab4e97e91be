"""`tidemark serve` as a process: how it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import live
import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DRAIN_SECONDS = 240
"""By default a minute. On a machine that others keep busy an answer of some dozen tokens can take longer than that, and
then it is ended on purpose, which is not what is tested here."""

STORY = {"prompt": "Write a very long story.", "ignore_eos": True, "stream": True}


class Reader(threading.Thread):
    """Reads one stream to its end; `begun` is set with the first event."""

    def __init__(self, url: str, max_tokens: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._body = {**STORY, "max_tokens": max_tokens}
        self.begun = threading.Event()
        self.lines: list[str] = []
        self.start()
        assert self.begun.wait(120), "no first token"

    def run(self) -> None:
        with httpx.stream("POST", f"{self._url}/v1/completions", json=self._body, timeout=120) as response:
            for line in response.iter_lines():
                self.lines.append(line)
                self.begun.set()

    def text(self) -> str:
        self.join(120)
        return "\n".join(self.lines)


@pytest.fixture
def server(smollm2_path: Path, tmp_path: Path):
    # One thread: two that wait for each other in every kernel are many times slower beside somebody else's work.
    flags = ["--threads", "1", "--drain-seconds", str(DRAIN_SECONDS)]
    with live.serving(tmp_path, str(smollm2_path), *flags) as running:
        yield running


def resident_bytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_sigterm_lets_running_streams_finish_and_ends_with_zero(server):
    http_process = psutil.Process(server.process.pid)
    assert resident_bytes(http_process) < 200 * 1024 * 1024
    assert not any("torch" in mapped.path for mapped in http_process.memory_maps())
    reader = Reader(server.url, max_tokens=48)
    engine = http_process.children()[0]
    engine.terminate()  # systemd and `timeout` signal every process of a service
    assert server.terminate(DRAIN_SECONDS + 30) == 0
    assert reader.text().rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"length"' in reader.text()
    assert not engine.is_running()


def test_b035_a_killed_engine_ends_the_server_by_itself(server):
    reader = Reader(server.url, max_tokens=1000)
    psutil.Process(server.process.pid).children()[0].kill()
    assert server.process.wait(30) == 1
    assert '"error":' in reader.text()
    assert "[DONE]" not in reader.text()
    assert "tidemark serve: EngineDied: the engine process was killed" in server.log
