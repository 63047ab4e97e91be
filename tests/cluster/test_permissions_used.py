"""Every permission that is granted is needed, and nothing else is asked for.

What the API server's own audit log says of an operator that had the permissions of the table and lived through
everything that makes it use one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import monitoring_kinds
import operator_runner
import pytest

from tidemark_operator import names, permissions
from tidemark_operator.plan import history

if TYPE_CHECKING:
    from bed.running import Bed

NAME = operator_runner.NAME

pytestmark = pytest.mark.timeout(600)


class Use(NamedTuple):
    """One verb of one row of the table."""

    scope: permissions.Scope
    group: str
    resource: str
    verb: str


NEVER_SEEN: Mapping[Use, str] = {
    Use(permissions.Scope.SERVICES, names.GROUP, f"{names.PLURAL}/finalizers", "update"): (
        "no request of its own: an API server with the plugin OwnerReferencesPermissionEnforcement (OpenShift's has "
        "it, the bed's has not) asks for it when a child with `blockOwnerDeletion` is made"
    ),
}
"""What cannot be in the log, and why."""
OF_EVERYBODY = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""What Kubernetes lets every account do, beside looking up which groups and versions there are."""


@pytest.fixture
def log(bench: operator_runner.Bench, node_bed: Bed) -> Iterable[dict[str, Any]]:
    """What the API server wrote about the account of this bench's operators; read when it is asked for."""
    account = f"system:serviceaccount:{bench.namespace}:{bench.namespace}"

    class Log:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return (event for event in node_bed.audit_events() if event["user"]["username"] == account)

    return Log()


def test_every_permission_is_used_and_none_is_missing(
    bench: operator_runner.Bench, log: Iterable[dict[str, Any]]
) -> None:
    live_through_everything(bench)
    events = list(log)
    refused = [event for event in events if event.get("responseStatus", {}).get("code") in (401, 403)]
    assert refused == []
    used = {use for event in events for use in uses(event, bench.namespace)}
    granted = {
        Use(row.scope, row.group, row.resource, verb) for row in permissions.TABLE for verb in row.verbs
    } - set(NEVER_SEEN)  # fmt: skip
    assert sorted(granted - used) == [], "granted and never used: take it out of the table, or say why above"
    assert sorted(used - granted) == [], "used and not in the table"


def live_through_everything(bench: operator_runner.Bench) -> None:
    """All that makes the operator list, create, change and delete what it may."""
    bench.start()
    monitoring_kinds.install(bench.bed)
    asked_for = {"allowFrom": [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}]}
    evaluated = {"kvCache": {"dtype": "int8"}, "evaluation": {"schedule": "@weekly"}}
    bench.ready(replicas=2, access=asked_for, scheduler={"maxNumSeqs": 5}, **evaluated)
    assert bench.of("cronjob", NAME)
    assert bench.of("networkpolicy", NAME)
    assert bench.of("poddisruptionbudget", NAME)
    bench.until_condition(NAME, "MonitoringReady", "True")
    # A roll, for which devices are counted, and after which many children are not wanted any more.
    bench.ready(
        podTemplate={"serviceAccountName": "default"}, scheduler={"maxNumSeqs": 6}, monitoring={"enabled": False}
    )
    bench.until(
        "only the new configuration is left, and none of the others",
        lambda: (
            [item["kind"] for item in bench.of("configmap,cronjob,networkpolicy,pdb,serviceaccount", NAME)]
            == ["ConfigMap"]
        ),
    )
    # A pod that waits for what is not there: the kubelet's events say what.
    bench.apply(operator_runner.small("waits", kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "no-map"}}}))
    bench.until_condition("waits", "Degraded", "True", "ConfigMapNotFound")
    bench.delete("tide", "waits")
    # The same event twice is one event and a count.
    for suspend, reason in ((True, "Suspended"), (False, ""), (True, "Suspended")):
        bench.patch("tide", NAME, {"spec": {"suspend": suspend}})
        bench.until_condition(NAME, "Ready", "False" if suspend else "True", reason)
    # More specs than are remembered.
    for number in range(history.LIMIT + 2):
        bench.patch("tide", NAME, {"spec": {"overload": {"maxQueuedRequests": 50 + number}}})
        bench.until_condition(NAME, "Ready", "False", "Suspended")
    bench.until("a count", lambda: any(item.get("series") for item in bench.bed.objects(_EVENTS, bench.namespace)))
    bench.delete("tide", NAME)
    bench.until("nothing is left", lambda: not bench.of("configmap,controllerrevision,deployment,service", NAME))
    bench.end()


_EVENTS = "events.events.k8s.io"


def uses(event: Mapping[str, Any], namespace: str) -> Iterator[Use]:
    """What of the table a request needs; an apply of what was not there needs `create` too."""
    about = event.get("objectRef")
    if about is None:
        assert event["verb"] == "get", event
        assert event["requestURI"].startswith(("/api", "/version")), event
        return
    group = about.get("apiGroup", "")
    resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
    if (group, resource, event["verb"]) in OF_EVERYBODY:
        return
    assert about.get("namespace", "") in ("", namespace), event
    scope = permissions.Scope.SERVICES
    if not about.get("namespace"):
        scope = permissions.Scope.CLUSTER
    elif resource == "leases":
        scope = permissions.Scope.OPERATOR
    yield Use(scope, group, resource, event["verb"])
    if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
        yield Use(scope, group, resource, "create")
