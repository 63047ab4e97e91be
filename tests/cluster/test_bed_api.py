"""The smaller bed: it answers, it is the version it claims, it stops cleanly after any crash, and it keeps an audit."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bed import cluster, errors, layout, lifecycle, processes, running, versions

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "as-root"},
    "spec": {"containers": [{"name": "main", "image": "localhost/nothing:1"}]},
}


def test_it_answers_under_its_version(api_cluster: cluster.Cluster) -> None:
    assert api_cluster.kubectl("get", "--raw", "/readyz") == "ok"
    assert "v1." in api_cluster.kubectl("get", "--raw", "/version")


def test_the_version_is_the_one_of_the_list(api_bed: running.Bed) -> None:
    assert f'"gitVersion": "v{versions.KUBERNETES}"' in api_bed.kubectl("get", "--raw", "/version")


def test_the_test_process_reaches_it_directly_and_checks_its_certificate(api_bed: running.Bed) -> None:
    context = ssl.create_default_context(cafile=str(api_bed.layout.pki("apiserver.crt")))
    with urllib.request.urlopen(f"https://{api_bed.net.node}:6443/readyz", timeout=10, context=context) as answer:
        assert answer.read() == b"ok"


def test_nothing_leaves_it(api_bed: running.Bed) -> None:
    routes = api_bed.run(["ip", "route"]).stdout.split("\n")
    assert [line for line in routes if line and not line.startswith(("default dev node0", "198.18.", "198.19."))] == []


def test_a_restricted_namespace_refuses_a_pod_that_may_be_root(api_cluster: cluster.Cluster) -> None:
    with api_cluster.namespace("bed-restricted") as namespace:
        with pytest.raises(errors.CommandFailed) as refused:
            api_cluster.apply(POD, namespace=namespace)
        assert 'violates PodSecurity "restricted:latest"' in refused.value.stderr
    with api_cluster.namespace("bed-open", labels={}) as namespace:
        api_cluster.apply(POD, namespace=namespace)
        assert api_cluster.get("pod", "as-root", namespace) is not None


def test_owner_references_are_followed(api_cluster: cluster.Cluster) -> None:
    with api_cluster.namespace("bed-owner") as namespace:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
        api_cluster.apply(owner, namespace=namespace)
        found = api_cluster.get("configmap", "owner", namespace)
        assert found is not None
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": found["metadata"]["uid"]}
        child = {**owner, "metadata": {"name": "child", "ownerReferences": [reference]}}
        api_cluster.apply(child, namespace=namespace)
        api_cluster.kubectl("delete", "configmap", "owner", "-n", namespace)
        api_cluster.eventually("no child", lambda: api_cluster.get("configmap", "child", namespace) is None)


def test_the_audit_says_who_asked_for_what(api_bed: running.Bed) -> None:
    account = "system:serviceaccount:default:auditor"
    with pytest.raises(errors.CommandFailed, match="cannot list resource"):
        api_bed.kubectl("get", "secrets", "-n", "default", f"--as={account}")

    def of_it() -> list[dict[str, Any]]:
        events = api_bed.audit_events()
        return [event for event in events if event.get("impersonatedUser", {}).get("username") == account]

    seen = api_bed.eventually("it is written", of_it)
    assert [(event["verb"], event["objectRef"]["resource"]) for event in seen] == [("list", "secrets")]
    assert seen[0]["responseStatus"]["code"] == 403


def test_the_api_server_restarts_alone_and_keeps_its_objects(api_bed: running.Bed) -> None:
    with api_bed.namespace("bed-restart") as namespace:
        etcd, before = api_bed.pid("etcd"), api_bed.pid("apiserver")
        api_bed.stop("apiserver")
        with pytest.raises(errors.CommandFailed, match="refused"):
            api_bed.kubectl("get", "namespaces")
        api_bed.start("apiserver")
        assert (api_bed.pid("etcd"), api_bed.pid("apiserver") != before) == (etcd, True)
        assert api_bed.get("namespace", namespace) is not None


def test_history_can_be_forgotten(api_bed: running.Bed) -> None:
    with api_bed.namespace("bed-history") as namespace:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        old = json.loads(api_bed.kubectl("get", "--raw", path))["metadata"]["resourceVersion"]
        api_bed.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}, namespace=namespace)
        api_bed.compact()
        api_bed.kill("apiserver")
        api_bed.start("apiserver")
        watch = f"{path}?watch=1&resourceVersion={old}&timeoutSeconds=5"
        said = api_bed.run([api_bed.kubectl_program, "get", "--raw", watch], check=False)
        assert "too old resource version" in said.stdout + said.stderr


@pytest.fixture
def own_name(needs_a_bed: None, api_bed: running.Bed) -> Iterator[str]:
    """For a second bed beside the first."""
    name = f"second-{os.getpid()}"
    yield name
    lifecycle.down(name)


def test_two_beds_live_side_by_side_and_the_second_leaves_nothing(own_name: str, api_bed: running.Bed) -> None:
    second = lifecycle.up(own_name, layout.Options(size="api"))
    assert second.net.block != api_bed.net.block
    with second.namespace("only-here") as namespace:
        assert api_bed.get("namespace", namespace) is None
    with pytest.raises(errors.NameTaken, match="runs already"):
        lifecycle.up(own_name, layout.Options(size="api"))
    pids = [process.pid for process in second.record.parts.values()]
    assert lifecycle.down(own_name)
    assert lifecycle.leftovers(own_name) == []
    assert [pid for pid in pids if processes.is_running(pid)] == []
    assert api_bed.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_bed_starts_anew_after_everything_of_it_was_killed(own_name: str) -> None:
    first = lifecycle.up(own_name, layout.Options(size="api"))
    for name in first.record.parts:
        first.kill(name)
    again = lifecycle.up(own_name, layout.Options(size="api"))
    assert again.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_bed_whose_owner_was_killed_is_removed_by_the_next_start(own_name: str) -> None:
    program = f"""
        import os, signal
        from bed import layout, lifecycle
        lifecycle.up("{own_name}", layout.Options(size="api"), owned=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert lifecycle.find(own_name).kubectl("get", "--raw", "/readyz") == "ok"
    lifecycle.remove_orphans()
    assert lifecycle.leftovers(own_name) == []


def test_a_part_that_does_not_start_is_named_with_its_last_words(own_name: str) -> None:
    nonsense = layout.Options(size="api", audit_policy={"rules": [{"level": "Everything"}]})
    with pytest.raises(errors.StartFailed, match=r"apiserver[^$]*Everything"):
        lifecycle.up(own_name, nonsense)
    assert lifecycle.leftovers(own_name) == []


@pytest.mark.parametrize("name", ["", "UPPER", "-x", "../escape", "a" * 30])
def test_a_name_that_would_not_do_is_refused(name: str) -> None:
    with pytest.raises(errors.BedError, match="expected at most 24"):
        lifecycle.up(name, layout.Options(size="api"))
