from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from tidemark_operator import errors, permissions
from tidemark_operator.cluster.kubernetes import access, kinds
from tidemark_operator.permissions import Scope
from tidemark_operator.reconcile import children


def test_the_table_is_sorted_and_each_row_has_its_reason() -> None:
    keys = [(row.scope, row.group, row.resource) for row in permissions.TABLE]
    assert keys == sorted(set(keys))
    for row in permissions.TABLE:
        assert row.why
        assert list(row.verbs) == sorted(set(row.verbs))


def test_secrets_are_never_read() -> None:
    verbs = {verb for row in permissions.TABLE if row.resource.startswith("secrets") for verb in row.verbs}
    assert verbs == {"create", "patch"}


def test_nothing_is_granted_by_star() -> None:
    assert not any("*" in (row.group, row.resource, *row.verbs) for row in permissions.TABLE)


def test_every_watched_kind_may_be_listed_and_watched() -> None:
    granted = {(row.group, row.resource): row.verbs for row in permissions.TABLE if row.scope is Scope.SERVICES}
    for kind in (*kinds.WATCHED, *kinds.OPTIONAL):
        assert {"list", "watch"} <= set(granted[kind.group, kind.plural])
    for name in (*children.KINDS, *children.WRITE_ONLY_KINDS):
        kind = kinds.TABLE[name]
        assert {"create", "patch"} <= set(granted[kind.group, kind.plural])


def test_what_may_be_deleted_is_what_the_reconciler_deletes() -> None:
    deletable = {(row.group, row.resource) for row in permissions.TABLE if "delete" in row.verbs}
    deleted = [kinds.TABLE[name] for name in children.KINDS if name not in children.LASTING_KINDS]
    assert deletable == {(kind.group, kind.plural) for kind in deleted}


def told(questions: Iterable[permissions.Question]) -> set[tuple[str, str, str]]:
    return {(item.verb, item.permission.resource, item.namespace) for item in questions}


def test_cluster_wide_and_namespaced_operators_ask_for_different_things() -> None:
    everywhere = told(permissions.questions(("",), "system"))
    assert ("watch", "pods", "") in everywhere
    assert ("update", "leases", "system") in everywhere
    limited = told(permissions.questions(("a", "b"), "system"))
    assert {("watch", "pods", "a"), ("watch", "pods", "b")} <= limited
    assert {item for item in limited if not item[2]} == {("list", "nodes", ""), ("list", "pods", "")}


class Reviewer:
    """Refuses what it is told to."""

    def __init__(self, *refused: tuple[str, str]) -> None:
        self.refused = refused
        self.asked: list[dict[str, str]] = []

    async def create(self, kind: kinds.Kind, namespace: str, body: Mapping[str, Any]) -> bytes:
        asked = body["spec"]["resourceAttributes"]
        self.asked.append(asked)
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return msgspec.json.encode({"status": {"allowed": (asked["verb"], resource) not in self.refused}})


async def test_all_that_is_missing_is_found_at_once() -> None:
    reviewer = Reviewer(("patch", "inferenceservices/status"), ("list", "nodes"))
    questions = list(permissions.questions(("",), "system"))
    found = await access.denied(reviewer, questions)  # type: ignore[arg-type]
    assert told(found) == {("list", "nodes", ""), ("patch", "inferenceservices/status", "")}
    assert len(reviewer.asked) == len(questions)


async def test_what_can_be_done_without_is_a_warning_with_its_consequence() -> None:
    found = await access.denied(Reviewer(("list", "nodes")), permissions.questions(("",), "system"))  # type: ignore[arg-type]
    (line,) = access.check(found)
    assert line.startswith("list nodes in all namespaces: without it rollouts of strategy `auto` stop the old pod")


async def test_what_cannot_be_done_without_ends_the_start_and_names_everything() -> None:
    refused = Reviewer(("watch", "pods"), ("create", "deployments"), ("create", "events"))
    found = await access.denied(refused, permissions.questions(("team",), "system"))  # type: ignore[arg-type]
    with pytest.raises(errors.Refused) as raised:
        access.check(found)
    for words in (
        "watch pods in namespace team: their troubles are told",
        "create deployments of apps in namespace team: runs the engine pods",
        "create events of events.k8s.io in namespace team: without it",
    ):
        assert words in str(raised.value)


def test_verbs_of_one_row_are_told_together() -> None:
    refused = [item for item in permissions.questions(("",), "system") if item.permission.resource == "events"]
    (line,) = access.check(refused)
    assert line.startswith("create, list, patch events of events.k8s.io in all namespaces: without it ")
