"""`tidemark bench` from the command line, against a made server on a virtual clock."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
import virtual_loop

from tidemark_operator import cli
from tidemark_runtime.loadtest import target

ROOT = Path(__file__).resolve().parents[3]
URL = "http://made:8000"
SHORT = ["--duration", "3", "--warm-up", "0.5", "--requests", "4", "--output-tokens", "10"]


def _load_made_server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_made_server", ROOT / "tests/unit/loadtest/conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    """What any address leads to; time is virtual."""
    made = _load_made_server().MadeServer()
    real = target.open_http

    def open_http(url, verify, timeout_seconds):
        return real(url, verify, timeout_seconds, httpx.MockTransport(made))

    monkeypatch.setattr(target, "open_http", open_http)
    monkeypatch.setattr(asyncio.events, "new_event_loop", virtual_loop.VirtualLoop)
    monkeypatch.delenv(target.KEY_VARIABLE, raising=False)
    return made


def test_a_ramp_as_tables(server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bench", URL, "--ramp", "2:16", *SHORT]) == 0
    shown = capsys.readouterr()
    for words in (
        "made at http://made:8000 (tidemark 9.9): prompts of 128 tokens, answers of 10, seed 1",
        "OUTPUT TOKENS/S",
        "16 users",
        "first token",
        "P99",
        "QUEUE WAIT MEAN",
        "SENT LATE P95",
        "Knee: 4 users",
        "8 users: +",
        "Set scheduler.maxConcurrencySoft: 4 (hot: no restart)",
        "Prompts: exact",
    ):
        assert words in shown.out, words
    assert "asking the server ..." in shown.err
    assert "2 users ..." in shown.err


def test_an_open_loop_as_json_with_files(server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "run.json", tmp_path / "run.html"
    arguments = ["--rate", "2,20,40", "--arrivals", "even", "-o", "json", "--json", str(file), "--html", str(page)]
    assert cli.run(["bench", f"{URL}/v1/", *arguments, *SHORT, "--seed", "5", "--check"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(file.read_text(encoding="utf-8"))
    assert [level["name"] for level in found["levels"]] == ["2 requests/s", "20 requests/s", "40 requests/s"]
    assert found["about"]["seed"] == 5
    assert found["knee"]["field"] == "scheduler.maxConcurrencySoft"
    assert found["levels"][0]["check"]["identical"] == 4
    drawn = page.read_text(encoding="utf-8")
    assert drawn.count("<svg") == 4
    assert "seconds to the first token" in drawn
    assert not re.search(r'(?:src|href)="', drawn), "nothing from elsewhere"


def test_a_workload_file_and_its_multiples(server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(
        "durationSeconds: 4\nclasses:\n"
        "  chat: {arrivals: {poisson: {perSecond: 4}}, promptTokens: 30, outputTokens: 5}\n"
        "  batch: {arrivals: {bursts: {size: 2, everySeconds: 3}}, promptTokens: 30, outputTokens: 5}\n",
        encoding="utf-8",
    )
    assert cli.run(["bench", URL, "--workload", str(file), "--scale", "1,2"]) == 0
    shown = capsys.readouterr().out
    for words in ("chat.yaml", "1 x workload, all", "2 x workload, batch", "settings of the workload file are"):
        assert words in shown
    assert cli.run(["bench", URL, "--workload", str(file)]) == 0
    assert "Knee" not in capsys.readouterr().out


def test_limits_that_are_broken_end_with_1(server, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--users", "1,2", "--max-ttft-p95", "0.05", "--min-tokens-per-second", "10"]
    assert cli.run(["bench", URL, *arguments, *SHORT]) == 1
    shown = capsys.readouterr()
    assert "no level has at least 10 output tokens/s and first tokens within 0.05 s (p95)" in shown.err
    assert "Not even the lowest level is fine" in shown.out
    assert cli.run(["bench", URL, *arguments, *SHORT, "--max-ttft-p95", "0.5"]) == 0


def test_answers_that_differ_end_with_1_where_asked(server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = lambda prompt, running: str(running)
    arguments = ["--users", "3,4", "--check", "--min-identical", "1", "--target-ttft-p95", "9", "--gain", "0.1"]
    assert cli.run(["bench", URL, *arguments, *SHORT]) == 1
    shown = capsys.readouterr()
    assert "of the answers are identical, --min-identical asks for 100%" in shown.err
    assert "another answer" in shown.out


def test_nothing_served_ends_with_1(server, capsys: pytest.CaptureFixture[str]) -> None:
    server.most_waiting = 0
    assert cli.run(["bench", URL, "--users", "1", *SHORT]) == 1
    shown = capsys.readouterr()
    assert "not one request was served. They ended as: 429 queue_full" in shown.err
    assert "(Retry-After p50 3 s, most 3 s)" in shown.out


def test_no_server_ends_with_1(monkeypatch: pytest.MonkeyPatch, server, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("All connection attempts failed")

    transport = httpx.MockTransport(refuse)
    monkeypatch.setattr(target, "open_http", lambda url, *_: httpx.AsyncClient(base_url=url, transport=transport))
    assert cli.run(["bench", URL, "--users", "1"]) == 1
    assert "does not answer GET /v1/models: All connection attempts failed" in capsys.readouterr().err


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As at a terminal. Who starts the tests in the background of a shell has them begin with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_shows_what_there_is_and_ends_with_130(
    server, ctrl_c: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on_request = lambda number: signal.raise_signal(signal.SIGINT) if number == 40 else None
    file = tmp_path / "run.json"
    assert (
        cli.run(["bench", URL, "--users", "1,4,8", "--json", str(file), *SHORT, "--min-tokens-per-second", "1e9"])
        == 130
    )
    shown = capsys.readouterr()
    assert "4 users (cut short)" in shown.out
    assert "stopped before the end" in shown.err
    assert "no level has" not in shown.err
    assert json.loads(file.read_text(encoding="utf-8"))["interrupted"] is True


def test_keys_come_from_a_file_or_the_environment(
    server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.key = "sk-hidden"
    file = tmp_path / "keys"
    file.write_text("# ours\nsk-hidden name=load max-priority=3\n", encoding="utf-8")
    assert cli.run(["bench", URL, "--users", "1", *SHORT]) == 1
    assert "answered 401" in capsys.readouterr().err
    assert cli.run(["bench", URL, "--users", "1", *SHORT, "--api-key-file", str(file), "-o", "json"]) == 0
    monkeypatch.setenv(target.KEY_VARIABLE, "sk-hidden")
    assert cli.run(["bench", URL, "--users", "1", *SHORT, "--endpoint", "completions", "--model", "made"]) == 0
    shown = capsys.readouterr()
    assert "sk-hidden" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["made:8000"], "URL: got 'made:8000', expected http://HOST:PORT"),
        (["http://u:" + "secret@made"], "URL: got one with a name or password in it"),
        (["http://made:99999"], "URL: got 'http://made:99999'"),
        ([URL, "--users", "1", "--rate", "1"], "--rate: got --users beside it, expected one of --workload, --users"),
        ([URL, "--scale", "2"], "--scale: got '2', expected --workload beside it"),
        ([URL, "--workload", "missing.yaml"], "WORKLOAD: got 'missing.yaml', expected a readable YAML or JSON file"),
        ([URL, "--users", "4,2"], "--users: got '4,2', expected whole numbers"),
        ([URL, "--ramp", "4"], "--ramp: got '4', expected FIRST:LAST"),
        ([URL, "--rate", "nan"], "--rate: got 'nan'"),
        ([URL, "--prompt-tokens", "x"], "--prompt-tokens: got 'x'"),
        ([URL, "--shared-prompt-tokens", "500"], "--shared-prompt-tokens: got 500, expected at most the longest"),
        ([URL, "--html", "run.htm"], "--html: got 'run.htm', expected a file name that ends in .html"),
        (
            [URL, "--json", "/no/such/run.json"],
            "--json: got '/no/such/run.json', expected a file in a folder that exists",
        ),
        (
            [URL, "--api-key-file", "/no/such"],
            "--api-key-file: got '/no/such', expected a file that this user can read",
        ),
        ([URL, "--ca-file", "/no/such"], "--ca-file: got '/no/such', expected PEM certificates"),
        ([URL, "--ca-file", "x", "--insecure"], "--insecure: got True, expected no --ca-file beside it"),
        ([URL, "--min-identical", "1"], "--min-identical: got 1.0, expected --check beside it"),
        ([URL, "--timeout", "0"], "--timeout"),
        ([URL, "--seed", "-1"], "--seed"),
        ([URL, "--user", "1"], "--user"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    arguments: list[str], words: str, server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bench", *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert "secret" not in shown.err
    assert shown.out == ""
    assert server.bodies == []


@pytest.mark.parametrize("text", ["", "# only\n", "k\u00e9y\n"])
def test_bad_key_files(server, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    assert cli.run(["bench", URL, "--api-key-file", str(file)]) == 2
    error = capsys.readouterr().err
    assert "--api-key-file: got" in error
    assert "k\u00e9y" not in error
