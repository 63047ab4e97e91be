"""The restricted Pod Security level, rule by rule, over pods of all sorts.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import manifests
import pytest

from tidemark_operator import api, effects, plan

VOLUME_TYPES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
PODS: dict[str, dict[str, Any]] = {
    "small": manifests.small(),
    "full": manifests.full(),
    "image": manifests.changed("spec.model.source", {"image": {"reference": "r/m:1"}}),
    "suspended": manifests.small(suspend=True),
    "evaluation": manifests.small(kvCache={"dtype": "int8"}, evaluation={"schedule": "@weekly"}),
}
"""Of the last, that of the evaluation; of the others, the engine's."""


def template(document: dict[str, Any], **facts: Any) -> dict[str, Any]:
    wanted = plan.wanted(api.parse(document), plan.Facts(image="x", admin_token="t", **facts))
    if document == PODS["evaluation"]:
        (job,) = (item for item in wanted if item["kind"] == "CronJob")
        found: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]
    else:
        (deployment,) = (item for item in wanted if item["kind"] == "Deployment")
        found = deployment["spec"]["template"]
    return found


def volume_types(pod: dict[str, Any]) -> set[str]:
    return {key for volume in pod["spec"]["volumes"] for key in volume if key != "name"}


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod["spec"]
    return [item for kind in ("initContainers", "containers", "ephemeralContainers") for item in spec.get(kind, ())]


def every(pod: dict[str, Any], check: Callable[[dict[str, Any]], bool]) -> bool:
    """Holds for each container's own security context."""
    return bool(containers(pod)) and all(check(item.get("securityContext", {})) for item in containers(pod))


def probes_and_hooks(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for container in containers(pod):
        found += [container[key] for key in ("startupProbe", "readinessProbe", "livenessProbe") if key in container]
        found += list(container.get("lifecycle", {}).values())
    return found


RULES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "hostProcess": lambda pod: (
        "windowsOptions" not in pod["spec"]["securityContext"]
        and every(pod, lambda context: "windowsOptions" not in context)
    ),
    "host namespaces": lambda pod: not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"]),
    "privileged": lambda pod: every(pod, lambda context: not context.get("privileged", False)),
    "capabilities": lambda pod: every(pod, lambda context: context.get("capabilities") == {"drop": ["ALL"]}),
    "host ports": lambda pod: all("hostPort" not in port for item in containers(pod) for port in item.get("ports", ())),
    "host of probes": lambda pod: all("host" not in probe.get("httpGet", {}) for probe in probes_and_hooks(pod)),
    "AppArmor": lambda pod: (
        "appArmorProfile" not in pod["spec"]["securityContext"]
        and every(pod, lambda context: "appArmorProfile" not in context)
        and not any("apparmor" in key for key in pod["metadata"].get("annotations", {}))
    ),
    "SELinux": lambda pod: (
        "seLinuxOptions" not in pod["spec"]["securityContext"]
        and every(pod, lambda context: "seLinuxOptions" not in context)
    ),
    "/proc": lambda pod: every(pod, lambda context: "procMount" not in context),
    "sysctls": lambda pod: "sysctls" not in pod["spec"]["securityContext"],
    "volume types": lambda pod: volume_types(pod) <= VOLUME_TYPES,
    "privilege escalation": lambda pod: every(pod, lambda context: context.get("allowPrivilegeEscalation") is False),
    "not as root": lambda pod: (
        pod["spec"]["securityContext"]["runAsNonRoot"] is True
        and every(pod, lambda context: context.get("runAsNonRoot", True) is True)
    ),
    "user": lambda pod: (
        pod["spec"]["securityContext"]["runAsUser"] != 0
        and every(pod, lambda context: context.get("runAsUser", 1) != 0)
    ),
    "seccomp": lambda pod: (
        pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        and every(pod, lambda context: "seccompProfile" not in context)
    ),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pod", PODS)
def test_the_pod_keeps_the_rule(pod: str, rule: str) -> None:
    assert RULES[rule](template(PODS[pod]))


def test_more_than_the_level_asks_for() -> None:
    spec = template(manifests.full())["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False
    writable = {item["name"] for item in container["volumeMounts"] if not item.get("readOnly")}
    assert writable == {"cache", "tmp"}


def test_nothing_on_a_nodes_disk_grows_without_limit() -> None:
    volumes = template(manifests.full())["spec"]["volumes"]
    assert [item["emptyDir"] for item in volumes if "emptyDir" in item] == [{"sizeLimit": "1Gi"}] * 2


def test_secrets_can_be_read_by_the_engine_and_by_nobody_else() -> None:
    spec = template(manifests.full())["spec"]
    modes = {item["name"]: item["secret"]["defaultMode"] for item in spec["volumes"] if "secret" in item}
    assert modes == {"admin": 0o440, "api-keys": 0o440, "tls": 0o440}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"] == 65532


HOST_PATHS: list[tuple[dict[str, Any], str | None]] = [
    (manifests.changed("spec.model.source", {"hostPath": {"path": "/srv/m"}}), None),
    (manifests.small(), "/srv/store"),
]


@pytest.mark.parametrize(("document", "store"), HOST_PATHS)
def test_what_breaks_the_level_is_warned_of(document: dict[str, Any], store: str | None) -> None:
    pod = template(document, model_store_host_path=store)
    assert [rule for rule, holds in RULES.items() if not holds(pod)] == ["volume types"]
    assert volume_types(pod) - VOLUME_TYPES == {"hostPath"}
    (warning,) = effects.warnings(api.parse(document), model_store_host_path=store)
    assert "baseline or restricted Pod Security level refuse it" in warning
    assert effects.warnings(api.parse(document), local=True, model_store_host_path=store) == []


@pytest.mark.parametrize("source", [{"pvc": {"claimName": "m"}}, {"image": {"reference": "r/m:1"}}])
def test_the_nodes_store_is_mounted_only_where_a_model_is_looked_for_in_it(source: dict[str, Any]) -> None:
    document = manifests.changed("spec.model.source", source)
    assert "hostPath" not in volume_types(template(document, model_store_host_path="/srv/store"))
    assert effects.warnings(api.parse(document), model_store_host_path="/srv/store") == []
