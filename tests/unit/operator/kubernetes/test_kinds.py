from __future__ import annotations

import pytest

from tidemark_operator.cluster.kubernetes import kinds
from tidemark_operator.reconcile import children, loop


@pytest.mark.parametrize("row", list(kinds.TABLE.values()), ids=lambda row: row.name)
def test_a_path_can_be_read_back(row: kinds.Kind) -> None:
    namespace = "team" if row.namespaced else ""
    assert kinds.of_path(row.path(namespace)) == kinds.Target(row.name, namespace, False)
    assert kinds.of_path(row.path(namespace, "chat")) == kinds.Target(row.name, namespace, True)
    assert kinds.of_path(row.path(namespace, "chat", "status")) == kinds.Target(row.name, namespace, True)
    assert kinds.of_path(row.path()) == kinds.Target(row.name, "", False)


@pytest.mark.parametrize("path", ["/", "/version", "/api/v1", "/apis/apps/v1/statefulsets", "/api/v1/namespaces/team"])
def test_a_foreign_path_is_none_of_ours(path: str) -> None:
    assert kinds.of_path(path).kind == ""


def test_what_the_loop_watches_is_in_the_cache() -> None:
    assert set(loop.WATCHED_KINDS) == {kind.name for kind in (*kinds.WATCHED, *kinds.OPTIONAL)}


def test_secrets_are_written_and_never_cached() -> None:
    assert not any(kinds.TABLE[kind].watched for kind in children.WRITE_ONLY_KINDS)
