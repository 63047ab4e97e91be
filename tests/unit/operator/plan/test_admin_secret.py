"""The Secret with the token for /admin."""

from __future__ import annotations

import base64

import manifests

from tidemark_operator import api, plan
from tidemark_operator.plan import admin_secret, engine_config, layout


def test_the_secret_holds_the_token_where_the_engine_looks_for_it() -> None:
    service = api.parse(manifests.small())
    secret = admin_secret.build(service, plan.Facts(image="x", admin_token="tök3n"))
    assert secret["type"] == "Opaque"
    assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == {"token": "tök3n"}
    assert engine_config.parse(service).server.admin_token_file == f"{layout.ADMIN_DIR}/token"


def test_without_a_token_there_is_no_secret_rather_than_an_empty_one() -> None:
    kinds = [item["kind"] for item in plan.wanted(api.parse(manifests.small()), plan.Facts(image="x"))]
    assert "Secret" not in kinds


def test_another_token_is_no_new_pod() -> None:
    """Engines read the file again; the token is no part of what needs a new process."""
    service = api.parse(manifests.small())
    plans = [plan.wanted(service, plan.Facts(image="x", admin_token=token)) for token in ("a", "b")]
    changed = [one["kind"] for one, other in zip(*plans, strict=True) if one != other]
    assert changed == ["Secret"]
