"""What is written for a site: rules, examples and runbooks; and limits with which an alert could never fire."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import promtool
import pytest
import yaml

from tidemark_operator import cli, errors, names
from tidemark_operator.monitoring import inhibition, site
from tidemark_operator.monitoring.rules import catalog, promql, render
from tidemark_operator.monitoring.rules.model import ALERT_NAME, About, Language, Severity
from tidemark_operator.monitoring.rules.thresholds import Thresholds

DEFAULT = Thresholds()
GROUPS = catalog.groups(DEFAULT)
ALERTS = {alert.name: alert for alert in catalog.alerts_of(GROUPS)}


def check(*words: str) -> str:
    done = subprocess.run([promtool.program(), "check", *words], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_both_files_of_rules_say_the_same() -> None:
    files = site.rules(DEFAULT)
    plain = yaml.safe_load(files[site.RULES])
    custom = yaml.safe_load(files[site.PROMETHEUS_RULE])
    assert custom["spec"] == plain
    assert (custom["apiVersion"], custom["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    written = [rule["alert"] for group in plain["groups"] for rule in group["rules"] if "alert" in rule]
    assert written == list(ALERTS)


def test_labels_that_a_prometheus_selects_by_are_put_on_the_rules() -> None:
    """B081."""
    made = render.prometheus_rule("chat", GROUPS, DEFAULT, {"release": "mon"})
    assert made["metadata"]["labels"]["release"] == "mon"


def test_every_alert_has_what_somebody_on_call_needs() -> None:
    rules = site.rules(DEFAULT)[site.RULES]
    for name, alert in ALERTS.items():
        assert ALERT_NAME.fullmatch(name)
        assert alert.severity in Severity
        assert len(alert.summary) < 160, name
        assert len(alert.summary_zh) < 80, name
        assert re.search(r"[\u4e00-\u9fff]", alert.summary_zh), name
        assert re.search(r"\d|\$value|False", alert.description), f"{name}: no number"
        url = f"{DEFAULT.runbook_base_url}/en/{name}.md"
        assert f"runbook_url: {url}\n" in rules


def test_runbooks_may_lie_elsewhere_and_be_chinese() -> None:
    there = dataclasses.replace(DEFAULT, runbook_base_url="https://wiki/x/", runbook_language=Language.ZH)
    text = site.rules(there)[site.RULES]
    assert text.count("runbook_url: https://wiki/x/zh/Tidemark") == len(ALERTS)


def test_rules_of_one_service_look_at_no_other() -> None:
    """Every selector of every group about services carries the scope."""
    scope = promql.Scope((("namespace", "team-a"), ("service", "chat")))
    groups = catalog.groups(dataclasses.replace(DEFAULT, scope=scope), About.SERVICE)
    matchers = 'namespace="team-a",service="chat"'
    for group in groups:
        for rule in (*group.recording, *group.alerts):
            series = re.findall(
                r"(?<![\w:])(?:(?:service|engine):tidemark_[\w:]+|tidemark_\w+|up)\b(.{0,60})", rule.expr
            )
            assert series, rule
            assert [after for after in series if not after.startswith("{" + matchers)] == [], rule.expr
    assert not {group.name for group in groups} & {group.name for group in catalog.groups(DEFAULT, About.OPERATOR)}


def test_a_label_value_cannot_leave_its_quotes() -> None:
    assert promql.Scope((("service", 'a"}\\'),)).select("x") == 'x{service="a\\"}\\\\"}'
    assert promql.matches("job", 'a"b') == 'job=~"a\\"b"'


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("first_token_seconds", 3.0, "first_token_seconds: got 3.0, expected an edge of the histogram: one of 0.00"),
        ("inter_token_seconds", 0.0, "inter_token_seconds: got 0.0"),
        ("queue_wait_seconds", 7.0, "queue_wait_seconds: got 7.0"),
        ("availability", 0.9, "availability: got 0.9, expected more than 0.931 and less than 1"),
        ("first_token_ratio", 1.0, "first_token_ratio: got 1.0"),
        ("inter_token_ratio", 0.5, "the alert could never fire"),
        ("crossed_ratio", 90, "crossed_ratio: got 90, expected 0 or more and less than 1"),
        ("refused_ratio", 1.0, "refused_ratio: got 1.0"),
        ("retried_ratio", -0.1, "retried_ratio: got -0.1"),
        ("reconcile_failed_ratio", 5, "reconcile_failed_ratio: got 5"),
        ("prefix_least_ratio", 10, "prefix_least_ratio: got 10"),
        ("certificate_critical_seconds", 3e6, "less than certificate_warning_seconds (1814400)"),
    ],
)
def test_limits_with_which_an_alert_could_not_fire_are_refused(key: str, value: float, said: str) -> None:
    with pytest.raises(errors.OperatorError) as raised:
        dataclasses.replace(DEFAULT, **{key: value})
    assert said in str(raised.value)


@pytest.mark.parametrize("edge", [0.5, 1.0, 5.0, 10.0])
def test_every_edge_makes_rules_that_promtool_takes(edge: float, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    other = dataclasses.replace(DEFAULT, first_token_seconds=edge, inter_token_seconds=2.0, queue_wait_seconds=edge)
    path.write_text(render.rule_file(catalog.groups(other), other), encoding="utf-8")
    assert check("rules", str(path)) == ""


def test_silenced_alerts_exist_and_are_no_more_urgent_than_what_silences_them() -> None:
    for rule in inhibition.RULES:
        assert {rule.by, *rule.silenced} <= set(ALERTS)
        assert rule.by not in rule.silenced
        if ALERTS[rule.by].severity is Severity.WARNING:
            assert {ALERTS[name].severity for name in rule.silenced} == {Severity.WARNING}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `tidemark render --monitoring --out` writes."""
    assert (
        cli.run(["render", "--monitoring", "--out", str(tmp_path / "mon"), "--runbook-base-url", "http://wiki/t"]) == 0
    )
    return tmp_path / "mon"


def test_prometheus_takes_the_written_files(folder: Path) -> None:
    assert check("rules", str(folder / site.RULES)) == ""
    assert check("config", str(folder / site.PROMETHEUS)) == ""
    # Debian's Prometheus is built without the discovery of Kubernetes; all else of that example is judged.
    on_kubernetes = yaml.safe_load((folder / site.PROMETHEUS_ON_KUBERNETES).read_text(encoding="utf-8"))
    for job in on_kubernetes["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (folder / "k.yaml").write_text(yaml.safe_dump(on_kubernetes), encoding="utf-8")
    assert check("config", str(folder / "k.yaml")) == ""


def test_alertmanager_takes_the_example(folder: Path) -> None:
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not on this machine; Debian's package `prometheus-alertmanager` has it")
    done = subprocess.run(
        [amtool, "check-config", str(folder / site.ALERTMANAGER)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_for_kubernetes_finds_our_pods() -> None:
    """B081: names of labels and ports are those that pods carry."""
    jobs = yaml.safe_load(site.examples()[site.PROMETHEUS_ON_KUBERNETES])["scrape_configs"]
    engine = {item.get("target_label"): item["source_labels"] for item in jobs[0]["relabel_configs"]}
    meta = "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", names.SERVICE_LABEL)
    assert engine["service"] == [meta]
    assert names.SERVICE_LABEL in names.labels("chat")
    assert {job["job_name"]: job.get("honor_labels", False) for job in jobs} == {
        DEFAULT.engine_jobs: False,
        DEFAULT.operator_jobs: True,
    }


def test_runbooks_are_written_where_the_alerts_look(folder: Path) -> None:
    rules = yaml.safe_load((folder / site.RULES).read_text(encoding="utf-8"))
    urls = [
        rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    ]
    assert len(urls) == len(ALERTS)
    for url in urls:
        assert (folder / "runbooks" / url.removeprefix("http://wiki/t/")).is_file()


def test_without_a_folder_the_rules_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["render", "--monitoring", "--no-operator"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    alerts = {rule.get("alert") for group in printed["groups"] for rule in group["rules"]}
    assert "TidemarkOperatorDown" not in alerts
    assert "TidemarkEngineDown" in alerts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--monitoring", "chat.yaml"], "FILE: got 'chat.yaml', expected nothing: --monitoring is about all services"),
        (["--out", "x", "chat.yaml"], "--out: got 'x', expected nothing without --monitoring"),
        (["--runbook-base-url", "http://x", "chat.yaml"], "--runbook-base-url: got 'http://x', expected nothing"),
        (["--no-operator", "chat.yaml"], "--operator: got 'False', expected nothing without --monitoring"),
        (["--monitoring", "--runbook-base-url", "wiki"], "--runbook-base-url: got 'wiki', expected a URL such as"),
        (["--monitoring", "--out", "/dev/null/x"], "--out: cannot write /dev/null/x/"),
        ([], "FILE: got nothing, expected a file of InferenceService manifests"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["render", *words]) == 2
    assert said in capsys.readouterr().err
