"""The CronJob of inspections: its rights are the table's, its words are the command's, its pod is restricted."""

from __future__ import annotations

import re
from typing import Any

import chart
import pytest
import yaml

from tidemark_operator import permissions
from tidemark_operator.commands import inspect, inspect_record
from tidemark_operator.permissions import Scope

TEMPLATES = chart.CHART / "templates"


@pytest.fixture
def rendered() -> list[dict[str, Any]]:
    """The golden manifests; that helm renders these is tested where helm is."""
    return chart.documents((chart.GOLDEN / "inspection.yaml").read_text())


def cron_job(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [document for document in rendered if document["kind"] == "CronJob"]
    return found


def words(rendered: list[dict[str, Any]]) -> list[str]:
    (container,) = cron_job(rendered)["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["tidemark"]
    verb, *arguments = container["args"]
    assert verb == "inspect"
    return list(arguments)


@pytest.mark.parametrize("scope", [Scope.SERVICES, Scope.OPERATOR])
def test_roles_are_the_table(scope: Scope) -> None:
    text = (TEMPLATES / "_rules.tpl").read_text()
    (block,) = re.findall(rf'define "tidemark\.inspection\.{scope.value}" -}}}}\n(.*?){{{{- end }}}}', text, re.DOTALL)
    rules = yaml.safe_load(re.sub(r"\{\{ include (\S+) .*?\}\}", r"\1", block))
    granted = {(rule["apiGroups"][0], rule["resources"][0], tuple(rule["verbs"])) for rule in rules}
    rows = [row for row in permissions.INSPECTION if row.scope is scope]
    assert granted == {(row.group, row.resource, row.verbs) for row in rows}
    named = {(rule["resources"][0], *rule.get("resourceNames", ())) for rule in rules}
    assert named == {(row.resource, *([row.template] if row.template else [])) for row in rows}


def test_it_reads_and_writes_one_config_map_and_sees_no_secret() -> None:
    keys = [(row.scope, row.group, row.resource) for row in permissions.INSPECTION]
    assert keys == sorted(set(keys))
    writing = [row for row in permissions.INSPECTION if set(row.verbs) - {"get", "list"}]
    assert [(row.resource, row.verbs, row.template) for row in writing] == [
        ("configmaps", ("patch",), "tidemark.inspectionName")
    ]
    assert not any("secrets" in row.resource or "proxy" in row.resource for row in permissions.INSPECTION)


def test_its_words_are_understood_and_mean_the_cluster(rendered: list[dict[str, Any]]) -> None:
    options = inspect.parser("tidemark inspect").parse_args(words(rendered))
    assert options.all_namespaces
    assert inspect.asks_cluster(options)
    assert inspect_record.parse(options.record) == ("tidemark-system", "tidemark-inspection")
    assert (options.fail_on, options.language, options.prometheus) == (
        "warning",
        "zh",
        "https://prometheus.example.com/p",
    )
    assert options.runbook_base_url == "http://tidemark.tidemark-system:8080/runbooks"


def test_every_file_that_it_names_is_mounted(rendered: list[dict[str, Any]]) -> None:
    spec = cron_job(rendered)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    mounted = {item["name"]: item["mountPath"] for item in spec["containers"][0]["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in spec["volumes"]}
    files = [word.partition("=")[2] for word in words(rendered) if "-file=" in word]
    assert len(files) == 2
    for file in files:
        assert file.rpartition("/")[0] in mounted.values()


def test_its_pod_is_restricted_and_no_target_of_the_service(rendered: list[dict[str, Any]]) -> None:
    (spec,) = chart.pod_specs(rendered).values()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = cron_job(rendered)["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    defaults = chart.documents((chart.GOLDEN / "defaults.yaml").read_text())
    selector = next(item["spec"]["selector"] for item in defaults if item["kind"] == "Service")
    assert not selector.items() <= labels.items()


def test_one_at_a_time_and_not_for_ever(rendered: list[dict[str, Any]]) -> None:
    spec = cron_job(rendered)["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["schedule"] == "@daily"
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (1, 3)
    job = spec["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 900)
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_there_is_none_by_default() -> None:
    assert chart.defaults()["inspection"]["enabled"] is False
    kinds = {item["kind"] for item in chart.documents((chart.GOLDEN / "defaults.yaml").read_text())}
    assert "CronJob" not in kinds
