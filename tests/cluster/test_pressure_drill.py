"""Load drives the real engine over each line: alert, condition, event, a lower limit, and all of it back, in order.

A real Prometheus and a real Alertmanager with the rendered files; operator and engine in pods, found by the rendered
relabelling. Durations of the rules are a fortieth, or with `-m long` as rendered; engine and operator keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from alerting import programs
from drill import run as run_
from drill import site as site_
from drill.watch import PREEMPT, QUEUE

from tidemark_operator.monitoring import site as monitoring_site
from tidemark_operator.monitoring.rules.model import Language

if TYPE_CHECKING:
    from bed.running import Bed

ORDER = (
    ("queue-load", "queue-crossed", "queue-pending", "queue-firing", "queue-received", "preempt-load"),
    ("queue-load", "queue-condition", "queue-event"),
    ("preempt-load", "preempt-crossed", "preempt-pending", "preempt-firing", "preempt-received", "load-end"),
    ("preempt-load", "preempt-event", "tightened", "tightened-engine", "load-end"),
    ("load-end", "left", "preempt-resolved"),
    ("load-end", "left", "gone", "gone-event", "restored", "restored-engine"),
)
"""What cannot come before what. Condition and alert do not wait for each other."""
SLACK_SECONDS = 1.0
"""Kubernetes writes some times in whole seconds."""

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(40.0, id="rules-40-times-faster"),
        pytest.param(1.0, id="rules-as-rendered", marks=[pytest.mark.long, pytest.mark.timeout(4500)]),
    ],
)
def site(
    request: pytest.FixtureRequest, smollm2_path: Path, node_bed: Bed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[site_.Site]:
    if missing := programs.missing():
        pytest.skip(missing)
    with site_.prepared(node_bed, tmp_path_factory.mktemp("drill"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def result(site: site_.Site) -> run_.Result:
    return run_.run(site)


def test_every_pod_is_exactly_one_target(site: site_.Site) -> None:
    """B081: by the rendered example, under the job and the labels that the rules rely on."""
    found = sorted(
        (target["labels"]["job"], target["labels"]["namespace"], target["labels"]["pod"], target["health"])
        for target in site.prometheus.targets()
    )
    pods = {namespace: site.bed.objects("pods", namespace) for namespace in (site.user, site.system)}
    names = {namespace: [pod["metadata"]["name"] for pod in items] for namespace, items in pods.items()}
    wanted = [(monitoring_site.ENGINE_JOB, site.user, name, "up") for name in names[site.user]]
    wanted += [(monitoring_site.OPERATOR_JOB, site.system, name, "up") for name in names[site.system]]
    assert found == sorted(wanted)
    assert len(found) == 2
    (engine,) = (target for target in site.prometheus.targets() if target["labels"]["namespace"] == site.user)
    assert engine["labels"]["service"] == site_.NAME
    (condition,) = site.prometheus.query('tidemark_operator_service_condition{condition="Ready",status="True"}')
    assert (condition["metric"]["namespace"], condition["metric"]["service"]) == (site.user, site_.NAME)


def test_every_runbook_opens_at_the_operator(site: site_.Site) -> None:
    with httpx.Client(verify=False, trust_env=False, timeout=30) as client:
        for alert in site.files.alerts.values():
            for language in Language:
                url = alert["annotations"]["runbook_url"].replace("/en/", f"/{language.value}/")
                assert client.get(url).status_code == 200, url


def test_everything_comes_in_order_and_ends(result: run_.Result) -> None:
    line = result.line
    shown = {key: round(line.since_start(key), 1) for key in line.at}
    for chain in ORDER:
        for earlier, later in pairwise(chain):
            assert line.at[earlier] <= line.at[later] + SLACK_SECONDS, (earlier, later, shown)


def test_who_is_called_can_act_on_the_message(site: site_.Site, result: run_.Result) -> None:
    for name, severity, receiver in ((QUEUE, "warning", "office-hours"), (PREEMPT, "critical", "on-call")):
        note = result.firing[name]
        assert note.labels == {
            "alertname": name,
            "namespace": site.user,
            "service": site_.NAME,
            "severity": severity,
        }
        assert note.receiver == receiver
        assert site_.NAME in note.annotations["summary"]
        assert "%" in note.annotations["description"]
        answer = httpx.get(note.annotations["runbook_url"], timeout=30, trust_env=False, verify=False)
        assert answer.text.startswith(f"# {name}")


def test_the_warning_is_not_sent_while_the_critical_one_fires(site: site_.Site, result: run_.Result) -> None:
    """That it is over may be told first, once both are: each message has a time of its own."""
    begin, end = result.firing[PREEMPT].at, result.resolved[PREEMPT].at
    meanwhile = [note for note in site.mail.notes if note.alert == QUEUE and begin < note.at < end]
    assert [note for note in meanwhile if note.is_firing or note.at < result.line.at["left"]] == []


def test_the_limit_is_lowered_within_its_bounds_and_every_step_is_an_event(result: run_.Result) -> None:
    assert site_.SOFT_LIMIT / 2 <= result.lowered_to < site_.SOFT_LIMIT
    wanted = {"AbovePreemptLine", "SoftLimitLowered", "MemoryPressureGone", "SoftLimitRestored"}
    assert wanted <= set(result.events)
    assert "pages in use" in result.events["AbovePreemptLine"]["note"]


def test_nobody_was_lost(result: run_.Result) -> None:
    """Where the wait is predicted to be too long, a request is told when to come back; no connection breaks off."""
    for answers in result.answers.values():
        assert 200 in answers
        assert set(answers) <= {200, 429}, answers


def test_no_rule_failed(site: site_.Site, result: run_.Result) -> None:
    assert site.prometheus.rule_problems() == []
