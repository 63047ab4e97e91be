"""A fault drill: every alert reaches Alertmanager's receiver, with texts that say something, and is taken back (B089).

A real Prometheus and a real Alertmanager with the rendered files; series are injected, and time passes faster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import live
import pytest
import uvicorn
from alerting import fault_drill, programs

from tidemark_operator.commands import operator_http
from tidemark_operator.monitoring.rules import catalog
from tidemark_operator.monitoring.rules.model import Language, Severity
from tidemark_operator.monitoring.rules.thresholds import Thresholds

ALERTS = {alert.name: alert for alert in catalog.alerts_of(catalog.groups(Thresholds()))}
NOT_FILLED = ("<no value>", "<error", "NaN", "%!", "{{", "Inf")
"""What Prometheus leaves in a text whose template found nothing, or no number."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def runbooks_url() -> Iterator[str]:
    """The operator's own HTTP server."""
    good = operator_http.Verdict(True, "fine")
    probes = operator_http.Probes(live=lambda: good, ready=lambda: good, metrics=lambda: b"")
    listener = operator_http.listen("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(operator_http.application(probes), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/runbooks"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def result(runbooks_url: str, tmp_path_factory: pytest.TempPathFactory) -> fault_drill.Result:
    """One drill for all tests."""
    if missing := programs.missing():
        pytest.skip(missing)
    return fault_drill.run(tmp_path_factory.mktemp("drill"), runbooks_url)


def test_every_alert_is_drilled(result: fault_drill.Result) -> None:
    assert set(result.outcomes) == set(ALERTS)


def receiver_of(severity: Severity) -> str:
    """Who gets up, and who looks at it in the morning."""
    return "on-call" if severity is Severity.CRITICAL else "office-hours"


@pytest.mark.parametrize("name", ALERTS)
def test_it_is_sent_and_taken_back(name: str, result: fault_drill.Result) -> None:
    """Once for each thing that fires, with exactly the labels that routing and inhibition rely on."""
    outcome, alert = result.outcomes[name], ALERTS[name]
    wanted = fault_drill.expected_labels(name, alert.severity.value)
    assert [note.labels for note in outcome.firing] == wanted
    assert [note.labels for note in outcome.resolved] == wanted
    assert {note.receiver for note in (*outcome.firing, *outcome.resolved)} == {receiver_of(alert.severity)}


@pytest.mark.parametrize("name", ALERTS)
def test_its_texts_are_filled_in(name: str, result: fault_drill.Result) -> None:
    for note in result.outcomes[name].firing:
        assert set(note.annotations) == {"summary", "summary_zh", "description", "runbook_url"}
        for text in note.annotations.values():
            assert text
            assert not [mark for mark in NOT_FILLED if mark in text], text


def test_every_runbook_opens_in_both_languages(runbooks_url: str, result: fault_drill.Result) -> None:
    urls = {note.annotations["runbook_url"] for note in result.notes}
    assert len(urls) == len(ALERTS)
    with httpx.Client(verify=live.CERTIFICATES, trust_env=False) as client:
        for url in sorted(urls):
            for language in Language:
                translated = url.replace("/runbooks/en/", f"/runbooks/{language.value}/")
                answer = client.get(translated)
                assert answer.status_code == 200, translated
                assert answer.text.startswith("#"), translated


def test_a_cluster_without_faults_is_never_mentioned(result: fault_drill.Result) -> None:
    assert [note.alert for note in result.notes if note.labels.get("cluster") == fault_drill.WELL] == []


def test_where_nothing_is_scraped_that_is_all_that_is_said(result: fault_drill.Result) -> None:
    assert "TidemarkOperatorDown" in result.inhibited_first
    first, second = (result.outcomes[name].firing[0].at for name in ("TidemarkNothingScraped", "TidemarkOperatorDown"))
    assert first < second


def test_no_rule_failed_and_nothing_is_left(result: fault_drill.Result) -> None:
    assert result.rule_problems == ()
    assert result.left == ()
