from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tidemark_operator import cli, errors
from tidemark_operator.cluster import interface
from tidemark_operator.commands import operator_http, operator_key, operator_logging, operator_passes
from tidemark_operator.reconcile import queue

KEY = interface.Key("InferenceService", "team", "chat")


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    key = operator_key.load(None, tmp_path, in_pod=False)
    assert len(key) >= operator_key.MIN_BYTES
    assert operator_key.load(None, tmp_path, in_pod=False) == key
    path = tmp_path / ".config" / "tidemark" / "operator.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_in_a_pod_a_key_is_never_invented(tmp_path: Path) -> None:
    with pytest.raises(errors.ManifestFileError, match=r"--key-file: got nothing.*head -c 32 /dev/urandom"):
        operator_key.load(None, tmp_path, in_pod=True)


def test_a_short_or_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"123")
    with pytest.raises(errors.ManifestFileError, match=r"holds 3 bytes, expected at least 16.*head -c 32"):
        operator_key.load(short, tmp_path, in_pod=False)
    with pytest.raises(errors.ManifestFileError, match=r"cannot read .*No such file.*head -c 32"):
        operator_key.load(tmp_path / "none", tmp_path, in_pod=False)


def test_tokens_differ_by_service_and_by_key() -> None:
    one = operator_key.token(b"k" * 32, "uid-1")
    assert one == operator_key.token(b"k" * 32, "uid-1")
    assert len({one, operator_key.token(b"k" * 32, "uid-2"), operator_key.token(b"l" * 32, "uid-1")}) == 3
    assert len(one) == 64


def test_an_image_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_ENGINE_IMAGE", raising=False)
    assert cli.run(["operator"]) == cli.EXIT_USAGE
    assert "TIDEMARK_ENGINE_IMAGE" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["8080", "host:", "host:port", "host:99999", ""])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(errors.ManifestFileError, match="expected HOST:PORT"):
        operator_http.listen(address)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(errors.Unavailable, match=f"cannot listen at {address}"):
            operator_http.listen(address)


def test_probes_answer_with_words() -> None:
    probes = operator_http.Probes(
        live=lambda: operator_http.Verdict(False, "the watch of Pod last worked 300 seconds ago"),
        ready=lambda: operator_http.Verdict(True, "leading"),
        metrics=lambda: b"tidemark_operator_leader 1.0\n",
    )
    client = TestClient(operator_http.application(probes))
    answer = client.get("/health/live")
    assert (answer.status_code, answer.text) == (503, "the watch of Pod last worked 300 seconds ago\n")
    assert client.get("/health/ready").status_code == 200
    assert client.get("/metrics").text == "tidemark_operator_leader 1.0\n"


def test_json_logs_are_one_object_a_line() -> None:
    record = logging.LogRecord("tidemark_operator.x", logging.WARNING, "f", 1, "failed: key=%s\nmore", ("a",), None)
    line = operator_logging.JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "failed: key=a\nmore"
    assert json.loads(line)["level"] == "warning"


async def test_passes_are_measured_by_result() -> None:
    seen: list[str] = []
    answers: list[float | None] = [None, queue.GONE]

    async def work(_: interface.Key) -> float | None:
        if not answers:
            raise errors.Unavailable("away")
        return answers.pop(0)

    passes = operator_passes.Passes(work, lambda result, _: seen.append(result))
    assert await passes.run(KEY) is None
    assert await passes.run(KEY) == queue.GONE
    with pytest.raises(errors.Unavailable):
        await passes.run(KEY)
    assert seen == ["done", "gone", "failed"]


async def test_at_the_end_running_passes_finish_and_no_new_one_begins() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    count = 0

    async def work(_: interface.Key) -> float | None:
        nonlocal count
        count += 1
        started.set()
        await go_on.wait()
        return None

    passes = operator_passes.Passes(work, lambda *_: None)
    running = asyncio.create_task(passes.run(KEY))
    await started.wait()
    assert not await passes.drain(0.01)
    draining = asyncio.create_task(passes.drain(5))
    await asyncio.sleep(0)
    assert await passes.run(KEY) is None
    go_on.set()
    assert await draining
    await running
    assert count == 1
