"""The Service, with and without TLS."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, plan
from tidemark_operator.plan import engine_config, layout

TLS = {"tlsSecretRef": {"name": "cert"}}


def wanted(access: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        item["kind"]: item for item in plan.wanted(api.parse(manifests.small(access=access)), plan.Facts(image="x"))
    }


@pytest.mark.parametrize(("access", "port", "scheme"), [({}, 80, "http"), (TLS, 443, "https")])
def test_the_service_and_the_probes_speak_as_the_engine_does(access: dict[str, Any], port: int, scheme: str) -> None:
    objects = wanted(access)
    (service_port,) = objects["Service"]["spec"]["ports"]
    assert (service_port["port"], service_port["appProtocol"], service_port["targetPort"]) == (port, scheme, "http")
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    schemes = {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "readiness", "liveness")}
    assert schemes == {scheme.upper()}


def test_the_engine_reads_the_certificate_from_the_secret() -> None:
    server = engine_config.parse(api.parse(manifests.small(access=TLS))).server
    assert (server.tls_cert_file, server.tls_key_file) == ("/run/tidemark/tls/tls.crt", "/run/tidemark/tls/tls.key")
    spec = wanted(TLS)["Deployment"]["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": "cert", "defaultMode": 0o440}} in spec["volumes"]
    assert {"name": "tls", "mountPath": layout.TLS_DIR, "readOnly": True} in spec["containers"][0]["volumeMounts"]


def test_without_a_certificate_nothing_of_it_is_there() -> None:
    server = engine_config.parse(api.parse(manifests.small())).server
    assert (server.tls_cert_file, server.tls_key_file) == (None, None)
