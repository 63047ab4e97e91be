"""The report of an inspection as text, JSON, HTML and ConfigMap; and what a TLS handshake shows."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import inspection_facts as made
import pytest
import rich.cells

from tidemark_operator import cli
from tidemark_operator.cluster.local import files
from tidemark_operator.commands import (
    inspect,
    inspect_document,
    inspect_html,
    inspect_record,
    inspect_site,
    inspect_text,
    inspect_tls,
    status_local,
)
from tidemark_operator.inspection import facts, run
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules.model import Language

CERTIFICATES = Path(__file__).parents[3] / "support" / "certificates"
SOURCE = {"asked": [{"kind": "cluster", "context": "prod", "server": "https://k:6443", "namespace": ""}]}
TROUBLE = made.site(
    made.service(conditions=[made.condition("Ready", "False", "CrashLoopBackOff", "It ended & <b>died</b>.")]),
    made.service(made.engine(lines={"queue": {"level": 0.7, "secondsAboveTotal": 17_280.0}}), name="other"),
    made.service(spec={"suspend": True}, name="third", engines=()),
)


def document(found: facts.Facts = TROUBLE, language: Language = Language.EN) -> dict[str, Any]:
    return inspect_document.build(run.inspect(found), SOURCE, language, "http://t:8080/runbooks", "0.1.0")


def test_the_document_counts_what_it_lists() -> None:
    found = document()
    assert found["schemaVersion"] == inspect_document.SCHEMA_VERSION == 1
    assert json.loads(json.dumps(found)) == found
    counted = {key: found["summary"][key] for key in ("critical", "warning", "info")}
    listed = [item["severity"] for item in found["findings"]]
    assert counted == {key: listed.count(key) for key in counted}
    assert sum(found["summary"][key] for key in ("fine", "found", "notChecked")) == found["summary"]["checks"]
    assert set(found["findings"][0]) == {
        "check", "severity", "service", "pod", "what", "evidence", "advice", "runbook", "runbookUrl",
    }  # fmt: skip


def test_the_worst_stands_first_and_what_is_fine_last() -> None:
    text = inspect_text.render(document()).plain
    headings = [
        line
        for line in text.splitlines()
        if line in ("Critical", "Warning", "Good to know", "Checked and fine", "Not checked")
    ]
    assert headings == ["Critical", "Warning", "Good to know", "Checked and fine", "Not checked"]
    assert "cluster: context prod, all namespaces (https://k:6443)" in text
    assert "3 services, 2/2 engines answered, no Prometheus" in text
    assert "  team/other" in text
    assert "Runbooks: http://t:8080/runbooks/en/NAME.md" in text


def test_reasons_are_told_once() -> None:
    """Four checks need a Prometheus, at three services: one line."""
    text = inspect_text.render(document()).plain
    assert text.count("no Prometheus was given") == 1


def test_a_partly_fine_check_names_its_services() -> None:
    text = inspect_text.render(document()).plain
    fine = "crossed for at most 0.1 % of the time since the engines started (team/chat)"
    assert f"✓ KV memory lines crossed lately: {fine}" in text


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("columns", [40, 80, 100])
def test_no_line_is_wider_than_the_terminal(language: Language, columns: int) -> None:
    lines = inspect_text.render(document(language=language), columns).plain.splitlines()
    wide = [line for line in lines if rich.cells.cell_len(line) > columns]
    assert [line for line in wide if len(line.split()) > 2] == []


@pytest.mark.parametrize("columns", [40, 100])
def test_breaking_lines_loses_no_word(columns: int) -> None:
    whole, broken = (inspect_text.render(document(), width).plain.split() for width in (None, columns))
    assert "".join(whole) == "".join(broken)


def test_a_site_without_findings_says_so() -> None:
    text = inspect_text.render(document(made.site())).plain
    assert "0 critical, 0 warning, 0 to know" in text
    assert "Nothing was found." in text


def test_html_escapes_what_pods_say_and_needs_nothing_from_elsewhere() -> None:
    page = inspect_html.render(document())
    assert "It ended &amp; &lt;b&gt;died&lt;/b&gt;." in page
    assert re.findall(r"(?:src|@import|url\()\s*=?", page) == []
    assert page.count("<article") == len(document()["findings"])
    for opened in ("article", "table", "p", "ul"):
        assert len(re.findall(rf"<{opened}[ >]", page)) == page.count(f"</{opened}>")


def test_a_record_holds_all_forms() -> None:
    found = inspect_record.entries(document())
    assert found["summary"] == "2026-11-30T12:00:00Z 1 critical, 1 warning, 1 info"
    assert json.loads(found["report.json"]) == document()
    assert found["report.html"].startswith("<!doctype html>")
    assert sum(len(text.encode()) for text in found.values()) < inspect_record.MOST_BYTES


def many(number: int) -> dict[str, Any]:
    services = [
        made.service(conditions=[made.condition("Ready", "False", "X", f"{n} 条" * 50)], name=f"s{n}")
        for n in range(number)
    ]
    return document(made.site(*services))


def test_a_record_that_is_too_large_is_cut_and_says_so() -> None:
    found = inspect_record.entries(many(300), 300_000)
    assert sum(len(text.encode()) for text in found.values()) <= 300_000
    shown = json.loads(found["report.json"])
    assert 20 <= len(shown["findings"]) < 300
    assert shown["summary"]["critical"] == 300
    for text in (found["report.txt"], found["report.html"], shown["cut"]):
        assert "Cut: a ConfigMap holds no more" in text
        assert f"({len(shown['findings'])}/" in text


def test_even_little_room_holds_the_beginning() -> None:
    found = inspect_record.entries(many(50), 2_000)
    assert sum(len(text.encode()) for text in found.values()) <= 2_000
    assert found["report.txt"].startswith("Cut: a ConfigMap holds no more")
    assert "Inspection 2026" in found["report.txt"]


# -- TLS --


def served(folder: Path) -> tuple[HTTPServer, threading.Thread]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "one.crt", CERTIFICATES / "one.key")
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    return server, thread


def openssl_end(file: Path) -> datetime.datetime:
    told = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", str(file)], capture_output=True, text=True, check=True
    ).stdout
    seconds = ssl.cert_time_to_seconds(told.strip().partition("=")[2])
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def test_the_end_of_a_certificate_that_nobody_trusts_is_seen(tmp_path: Path) -> None:
    server, thread = served(tmp_path)
    try:
        found = inspect_tls.certificate_of(f"https://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert found is not None
    assert found.not_after == openssl_end(CERTIFICATES / "one.crt")


@pytest.mark.parametrize("end", ["20200101000000Z", "20491231235959Z", "20610203040506Z"])
def test_both_forms_of_time_are_read(end: str, tmp_path: Path) -> None:
    """UTCTime up to 2049, GeneralizedTime from 2050 on; one that is long over as well."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=x",
    ]
    days = (
        datetime.datetime.strptime(end, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
        - datetime.datetime.now(datetime.UTC)
    ).days
    files = ["-keyout", str(tmp_path / "k"), "-out", str(tmp_path / "c"), "-days", str(max(1, days))]
    subprocess.run([*command, *files], check=True, capture_output=True)
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "c").read_text())
    assert inspect_tls.not_after(der) == openssl_end(tmp_path / "c")


def test_nobody_there_and_plain_http_are_told() -> None:
    found = inspect_tls.certificate_of("https://127.0.0.1:1")
    assert found is not None
    assert found.not_after is None
    assert "refused" in found.problem
    assert inspect_tls.certificate_of("http://127.0.0.1:1") is None


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x31\x00", b"\x30\x03\x30\x01\x00", b"\x30\x82\xff"])
def test_what_is_no_certificate_is_a_problem(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        inspect_tls.not_after(data)


def test_a_prometheus_that_answers_nothing_is_told_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A nightly Job whose token was withdrawn must not stay green: nothing of the past was looked at."""
    silent = facts.History(url="http://p:9090", answers={"a": Text("HTTP 401", "HTTP 401")})
    half = facts.History(url="http://p:9090", answers={"a": Text("too much", "太多"), "b": ()})
    fine = made.site(made.service())

    def code(found: facts.Facts) -> int:
        monkeypatch.setattr(inspect_site, "inspect", lambda *_: document(found))
        try:
            inspect.command.main(["--url", "http://e:8000", "--prometheus", "http://p:9090"], "tidemark inspect")
        except SystemExit as error:
            return int(str(error.code))
        return 0

    assert code(dataclasses.replace(fine, history=silent)) == inspect.EXIT_NOT_INSPECTED
    shown = capsys.readouterr()
    assert "Prometheus http://p:9090 gave no figures" in shown.out
    assert shown.err == "tidemark: --prometheus gave no figures: HTTP 401\n"
    assert code(dataclasses.replace(fine, history=half)) == 0
    assert code(fine) == 0
    assert code(dataclasses.replace(TROUBLE, history=silent)) == inspect.EXIT_FOUND


@pytest.mark.parametrize("text", ["x", "=b", "a=", "1a=b", "a b=c"])
def test_a_label_that_is_none_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        inspect.command.main(["--prometheus", "http://p:9090", "--prometheus-match", text], "tidemark inspect")
    assert caught.value.code == inspect.EXIT_NOT_INSPECTED
    assert f"--prometheus-match: got {text!r}, expected LABEL=VALUE" in capsys.readouterr().err


def test_where_nothing_runs_the_other_ways_to_inspect_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_STATE", str(tmp_path))
    assert cli.run(["inspect"]) == inspect.EXIT_NOT_INSPECTED
    said = capsys.readouterr().err
    assert said == (
        "tidemark: nothing runs here now: `tidemark up` starts a service. A cluster is asked with `tidemark inspect "
        "--cluster`, an engine by its address with `tidemark inspect --url URL`\n"
    )
    assert cli.run(["inspect", "base"]) == inspect.EXIT_NOT_INSPECTED
    said = capsys.readouterr().err
    assert "A cluster is asked with `tidemark inspect base --cluster`" in said
    assert "tidemark status" not in said


def test_where_several_run_each_command_speaks_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_STATE", str(tmp_path))
    monkeypatch.setattr(files, "running", lambda _: ["base", "other"])
    for verb in ("status", "inspect"):
        with pytest.raises(status_local.NotRunning, match=rf"2 run here: base, other\. Say `tidemark {verb} NAME`"):
            status_local.overview(None, verb)
