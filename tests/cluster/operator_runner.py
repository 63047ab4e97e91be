"""Operators of one test, and the services they keep, on a node whose pods run.

An operator runs beside the cluster as a process of its own, under an account that may do what `permissions.TABLE` says
and nothing else. It may be ended, killed and started again; what all of them have logged is looked at in the end.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import crd_cases
import httpx
import manifests
import operator_runs
import yaml
from bed import cluster, images, machine, pods, running, userland

from tidemark_operator import names, permissions

Value = TypeVar("Value")

NAME = "demo"
"""Of the one service that most tests have."""
STAND_IN = operator_runs.IMAGE
"""The name that every operator of these tests gives to engine pods."""
STAND_IN_PROGRAM = machine.CHECKOUT / "tests" / "integration" / "operator" / "stand_in_engine.py"
WAIT_SECONDS = 240.0
"""For what takes ten seconds on an idle machine: pods that start while other tests run."""
SMALL = {"cpu": "20m", "memory": "96Mi"}
"""What the scheduler counts for a stand-in, so that many fit on a node of two cores."""
RBAC = "rbac.authorization.k8s.io"


def stand_in(bed: running.Bed) -> str:
    """An image whose `tidemark` is an engine that computes nothing."""
    script = f'#!/bin/sh\nexec {userland.virtual_environment()}/bin/python {STAND_IN_PROGRAM} "$@"\n'
    path = f"/stand-in:{userland.virtual_environment()}/bin:/usr/local/bin:/usr/bin:/bin"
    files = {"/stand-in/tidemark": images.Text(script, 0o755)}
    return bed.load(images.host_python(STAND_IN, ["tidemark"], files, {"PATH": path}))


def small(name: str, **spec: Any) -> dict[str, Any]:
    """A service of stand-ins that start and end quickly; `spec` is laid over it, section by section."""
    base: dict[str, Any] = {
        "model": {"source": {"package": {"name": "smollm2-135m"}}},
        "hardware": {"resourceName": "cpu", "count": 1, "memory": "1Gi"},
        "rollout": {"drainSeconds": 0},
        "podTemplate": {"resources": {"requests": dict(SMALL)}},
    }
    for section, values in spec.items():
        base[section] = {**base[section], **values} if isinstance(base.get(section), dict) else values
    document = manifests.small(**base)
    document["metadata"] = {"name": name}
    return document


@dataclass
class Bench:
    """One namespace, its operators and its services."""

    bed: running.Bed
    namespace: str
    image: str
    folder: Path
    environment: Mapping[str, str]
    operators: list[operator_runs.Operator] = field(default_factory=list)
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, *arguments: str, image: str = "", seed: str = "0", leading: bool = True) -> operator_runs.Operator:
        """Another operator; the same key for all of them."""
        where = ("--namespace", self.namespace, "--lease-namespace", self.namespace)
        # The last of two --image wins.
        words = (*where, "--image", image or self.image, "--image-pull-policy", "Never", *arguments)
        environment = {**self.environment, "PYTHONHASHSEED": seed}
        made = self._running.enter_context(operator_runs.started(environment, self.folder, *words))
        self.operators.append(made)
        return made.leading() if leading else made

    def kill(self) -> None:
        """SIGKILL for the operator that was started last: it cannot finish anything."""
        self.operators[-1].end(signal.SIGKILL)

    def end(self) -> None:
        assert self.operators[-1].end() == 0, self.operators[-1].log

    def close(self) -> None:
        self._running.close()

    def check_logs(self) -> None:
        """Nothing unforeseen happened to any of them, and nothing was refused for want of a permission."""
        for operator in self.operators:
            assert "Traceback" not in operator.log, operator.log
            assert "orbidden" not in operator.log, operator.log  # in every 403 of an API server

    # -- services --

    def apply(self, document: cluster.Object) -> None:
        """As `kubectl apply` by hand: client-side, so that a key that is left out is removed."""
        text = json.dumps(document)
        self.bed.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=text)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self.bed.kubectl("patch", kind, name, "-n", self.namespace, "--type=merge", "-p", json.dumps(change))

    def get(self, kind: str, name: str) -> cluster.Object | None:
        return self.bed.get(kind, name, self.namespace)

    def found(self, kind: str, name: str) -> cluster.Object:
        document = self.get(kind, name)
        assert document is not None, f"there is no {kind} {name}"
        return document

    def delete(self, kind: str, name: str) -> None:
        self.bed.kubectl("delete", kind, name, "-n", self.namespace, "--wait=false")

    def of(self, kind: str, name: str) -> list[cluster.Object]:
        """Objects of a kind that belong to a service."""
        return self.bed.objects(kind, self.namespace, f"{names.SERVICE_LABEL}={name}")

    def engine_config_maps(self, name: str) -> list[cluster.Object]:
        """Those that engines read; that of the dashboard is for Grafana."""
        return [item for item in self.of("configmap", name) if item["metadata"]["name"] != names.dashboard(name)]

    def pods(self, name: str) -> dict[str, cluster.Object]:
        """Pods that are not ending, by uid."""
        found = self.of("pods", name)
        return {pod["metadata"]["uid"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def until(self, what: str, ask: Callable[[], Value | None], seconds: float = WAIT_SECONDS) -> Value:
        """Asks until the answer is something true; tells what the service and the operators say when it never is."""
        try:
            return self.bed.eventually(what, ask, seconds)
        except AssertionError as cause:
            raise AssertionError(f"{cause}\n{self._report()}") from cause

    def _report(self) -> str:
        everything = "tide,deployment,pods,events.events.k8s.io"
        shown = self.bed.run([self.bed.kubectl_program, "get", everything, "-n", self.namespace, "-o", "wide"])
        statuses = [
            f"{item['metadata']['name']}: {json.dumps(item.get('status'), indent=1)}"
            for item in self.bed.objects("tide", self.namespace)
        ]
        logs = [operator.log[-4000:] for operator in self.operators]
        return "\n".join([shown.stdout, *statuses, *logs])

    def until_condition(
        self, name: str, type_: str, status: str, reason: str = "", seconds: float = WAIT_SECONDS
    ) -> dict[str, Any]:
        """The condition, once it is so and of the spec as it is now."""

        def ask() -> dict[str, Any] | None:
            service = self.found("tide", name)
            found = condition(service, type_)
            current = found.get("observedGeneration") == service["metadata"]["generation"]
            matches = found.get("status") == status and (not reason or found.get("reason") == reason)
            return found if current and matches else None

        return self.until(f"{name} has {type_}={status} {reason}", ask, seconds)

    def until_ready(self, name: str, seconds: float = WAIT_SECONDS) -> None:
        self.until_condition(name, "Ready", "True", seconds=seconds)

    def ready(self, **spec: Any) -> set[str]:
        """The one service with this spec, Ready; the uids of its pods."""
        self.apply(small(NAME, **spec))
        self.until_settled(NAME)
        return set(self.pods(NAME))

    def until_settled(self, name: str) -> None:
        """Ready, and what stood in for others is gone."""
        self.until_ready(name)
        wanted = int(self.found("deployment", name)["spec"]["replicas"])
        self.until(f"{wanted} pods are left", lambda: len(self.of("pods", name)) == wanted)

    def url(self, name: str) -> str:
        """Of the Service, once it takes connections."""
        return pods.reachable_url(self.bed, name, self.namespace)

    def answer(self, name: str) -> dict[str, Any]:
        """What a stand-in says of itself, through the Service as it is now."""
        url = pods.service_url(self.bed, name, self.namespace)
        answer = httpx.get(f"{url}/", timeout=10, trust_env=False)
        answer.raise_for_status()
        return dict(answer.json())

    def answers(self, name: str, **expected: Any) -> dict[str, Any] | None:
        """The same, once it is as expected; a Service whose pods are being replaced may answer nothing."""
        try:
            said = self.answer(name)
        except httpx.HTTPError:
            return None
        return said if expected.items() <= said.items() else None


def condition(service: Mapping[str, Any], type_: str) -> dict[str, Any]:
    found = service.get("status", {}).get("conditions", [])
    return next((item for item in found if item["type"] == type_), {})


def passes(operator: operator_runs.Operator) -> float:
    """How often it has looked at a service."""
    return sum(operator.samples("tidemark_operator_reconciles_total").values())


@contextlib.contextmanager
def bench(bed: running.Bed, folder: Path, image: str) -> Iterator[Bench]:
    """A namespace that enforces the restricted level. Its operators are ended, and their logs checked, at the end."""
    crd_cases.install(bed)
    with bed.namespace("service") as namespace, _account(bed, namespace, folder) as environment:
        made = Bench(bed, namespace, image, folder, environment)
        try:
            yield made
        finally:
            made.close()
        made.check_logs()


@contextlib.contextmanager
def _account(bed: running.Bed, namespace: str, folder: Path) -> Iterator[dict[str, str]]:
    """Environment of an account with the permissions of the table."""
    name = namespace
    wide = [row for row in permissions.TABLE if row.scope is permissions.Scope.CLUSTER]
    near = [row for row in permissions.TABLE if row.scope is not permissions.Scope.CLUSTER]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    bed.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        *_role("Role", name, near, subject),
        namespace=namespace,
    )
    bed.apply(*_role("ClusterRole", name, wide, subject))
    # An operator that is refused anything at its start ends.
    bed.until_allowed(f"system:serviceaccount:{namespace}:{name}", "list", "pods")
    bed.until_allowed(f"system:serviceaccount:{namespace}:{name}", "patch", "configmaps", namespace)
    token = bed.kubectl("create", "token", name, "-n", namespace, "--duration=2h").strip()
    document = yaml.safe_load(bed.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    path = folder / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    try:
        yield {**bed.environment(), "KUBECONFIG": str(path)}
    finally:
        bed.kubectl("delete", "clusterrole,clusterrolebinding", name)


def _role(
    kind: str, name: str, rows: list[permissions.Permission], subject: Mapping[str, str]
) -> tuple[cluster.Object, cluster.Object]:
    rules = [{"apiGroups": [row.group], "resources": [row.resource], "verbs": list(row.verbs)} for row in rows]
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    version = f"{RBAC}/v1"
    return (
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": version,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "subjects": [dict(subject)],
            "roleRef": reference,
        },
    )
