"""Services drawn at random: an API server takes every child, and a second look at them finds nothing to change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crd_cases
import hypothesis
import operator_runner
import operator_runs
import pytest
import random_manifests

from tidemark_operator import api, names, plan

if TYPE_CHECKING:
    from bed.cluster import Cluster

COUNT = 25
FACTS = plan.Facts(image=operator_runs.IMAGE, admin_token="t")

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def namespace(api_cluster: Cluster) -> Iterator[str]:
    crd_cases.install(api_cluster)
    with api_cluster.namespace("random", labels={}) as made:
        yield made


def drawn(count: int) -> list[dict[str, Any]]:
    """The same at every run, each with a name of its own."""
    found: list[dict[str, Any]] = []

    @hypothesis.settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=(hypothesis.Phase.generate,)
    )
    @hypothesis.given(random_manifests.manifests())
    def collect(document: dict[str, Any]) -> None:
        found.append({**document, "metadata": {"name": f"random-{len(found)}"}})

    collect()
    return found


def test_a_second_look_writes_nothing_whatever_the_spec(api_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """B061: nor does another process, whose sets and dictionaries have another order."""
    documents = drawn(COUNT)
    where = ("--namespace", namespace, "--lease-namespace", namespace)
    environment = api_cluster.environment()
    with operator_runs.started({**environment, "PYTHONHASHSEED": "1"}, tmp_path, *where) as operator:
        operator.leading()
        # Not a server-side apply: kubectl cannot send every character in one.
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        api_cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=everything)
        wanted = {key for document in documents for key in planned(document)}
        operator.until("all children", lambda: wanted <= present(api_cluster, namespace))
        operator.settle()
        # Whoever touches what says nothing to the operator wakes it, and that is all.
        before, looks = operator.writes, operator_runner.passes(operator)
        api_cluster.kubectl("annotate", "tide", "--all", "-n", namespace, "example.com/touched=yes")
        operator.until("a look at each", lambda: operator_runner.passes(operator) >= looks + len(documents))
        operator.settle()
        assert operator.writes == before
        assert "reconcile failed" not in operator.log, operator.log
        assert operator.end() == 0
    with operator_runs.started({**environment, "PYTHONHASHSEED": "2"}, tmp_path, *where) as operator:
        operator.until("a look at each", lambda: operator_runner.passes(operator) >= len(documents))
        operator.settle()
        assert {series for series in operator.writes if 'kind="Secret"' not in series} == set()


def planned(document: dict[str, Any]) -> set[str]:
    """`Kind/name` of what the spec becomes."""
    return {f"{item['kind']}/{item['metadata']['name']}" for item in plan.wanted(api.parse(document), FACTS)}


def present(cluster: Cluster, namespace: str) -> set[str]:
    kinds = "configmap,deployment,networkpolicy,poddisruptionbudget,secret,service,serviceaccount"
    found = cluster.objects(kinds, namespace, names.SERVICE_LABEL)
    return {f"{item['kind']}/{item['metadata']['name']}" for item in found}
