"""Each crossing of a line is one line of the log of a real server, with the numbers; and as much as the level says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import live
import pytest
import yaml

from tidemark_runtime.contract import http as paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOKEN = {"authorization": "Bearer the-token"}
START = {
    "model": {"name": "small", "maxContextTokens": 512},
    "kvCache": {"numPages": 32, "blockSize": 16},
    "scheduler": {"maxNumSeqs": 4, "maxNumBatchedTokens": 256},
    "hardware": {"threads": 1},
}
CROSSING = re.compile(
    r"^time=\S+ level=INFO logger=tidemark_runtime\.engine\.stats (queue|preempt) line (crossed|left) "
    r"used_pages=(\d+) pages=32 at_ratio=([\d.]+) running=\d+ waiting=\d+$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def server(smollm2_path: Path, tmp_path_factory) -> Iterator[live.Server]:
    """512 tokens of memory in 32 pages."""
    folder = tmp_path_factory.mktemp("crossings")
    (folder / "token").write_text("the-token\n")
    (folder / "engine.yaml").write_text(yaml.safe_dump(START))
    flags = ["--config", str(folder / "engine.yaml"), "--admin-token-file", str(folder / "token")]
    with live.serving(folder, str(smollm2_path), *flags) as running:
        yield running


def fill(server: live.Server, first_token: int, num_tokens: int = 480) -> None:
    """One request that takes nearly all pages; afterwards both lines are left."""
    body = {"prompt": [first_token] * num_tokens, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{server.url}{paths.COMPLETIONS_PATH}", json=body, timeout=120, verify=live.CERTIFICATES)
    assert answer.status_code == 200, answer.text
    end = time.monotonic() + 60
    while any(line["above"] for line in server.status()["lines"].values()):
        assert time.monotonic() < end
        time.sleep(0.05)


def put(server: live.Server, level: str) -> None:
    document = START | {"server": {"logLevel": level}}
    url = f"{server.url}{paths.ADMIN_CONFIG_PATH}"
    answer = httpx.put(url, json=document, headers=TOKEN, timeout=30, verify=live.CERTIFICATES)
    assert answer.status_code == 200, answer.text


def test_each_crossing_is_one_line_with_the_numbers(server: live.Server) -> None:
    fill(server, 1000)
    server.wait_logged("preempt line left")
    server.wait_logged("queue line left")
    found = CROSSING.findall(server.log)
    assert sorted(item[:2] for item in found) == [
        ("preempt", "crossed"),
        ("preempt", "left"),
        ("queue", "crossed"),
        ("queue", "left"),
    ]
    for level, what, used, ratio in found:
        above = int(used) / 32 > float(ratio)
        assert above == (what == "crossed"), (level, what, used, ratio)
    assert server.log.count(" line crossed ") == server.log.count(" line left ") == 2, "no other lines say so"


def test_the_level_reaches_the_engine_while_it_runs(server: live.Server) -> None:
    before = len(CROSSING.findall(server.log))
    put(server, "warning")
    fill(server, 2000)
    put(server, "info")
    fill(server, 3000)
    end = time.monotonic() + 60
    while len(CROSSING.findall(server.log)) < before + 4 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(CROSSING.findall(server.log)) == before + 4, "only those after it was info again"
