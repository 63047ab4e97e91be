"""Asks the API server what this operator may do, so that a missing permission is told at the start and not by a
failure in the night."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from tidemark_operator import errors, permissions
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

_AT_ONCE = 8


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


async def denied(api: api_.Api, questions: Iterable[permissions.Question]) -> list[permissions.Question]:
    """Those that are answered with no, in the order of the table. Raises `errors.ClusterError`."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: permissions.Question) -> permissions.Question | None:
        async with turns:
            return None if await _allowed(api, question) else question

    answers = await asyncio.gather(*(ask(question) for question in questions))
    return [answer for answer in answers if answer is not None]


async def _allowed(api: api_.Api, question: permissions.Question) -> bool:
    kind = kinds.TABLE["SelfSubjectAccessReview"]
    resource, _, subresource = question.permission.resource.partition("/")
    attributes = {
        "namespace": question.namespace,
        "verb": question.verb,
        "group": question.permission.group,
        "resource": resource,
        "subresource": subresource,
    }
    body = {"apiVersion": kind.api_version, "kind": kind.name, "spec": {"resourceAttributes": attributes}}
    return msgspec.json.decode(await api.create(kind, "", body), type=_Review).status.allowed


def check(refused: Iterable[permissions.Question]) -> list[str]:
    """Lines for one warning: what is missing and what will not work. Raises `errors.Refused` with everything that is
    missing when the operator cannot work at all."""
    verbs: dict[tuple[permissions.Permission, str], list[str]] = {}
    for question in refused:
        verbs.setdefault((question.permission, question.namespace), []).append(question.verb)
    lines = [_line(row, namespace, missing) for (row, namespace), missing in verbs.items()]
    if any(not row.without for row, _ in verbs):
        heading = "permissions are missing; install the chart's roles, or grant to the operator's account:"
        raise errors.Refused("\n  ".join([heading, *lines]))
    return lines


def _line(row: permissions.Permission, namespace: str, verbs: list[str]) -> str:
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    group = f" of {row.group}" if row.group else ""
    consequence = f"without it {row.without}" if row.without else row.why
    return f"{', '.join(verbs)} {row.resource}{group} {where}: {consequence}"
