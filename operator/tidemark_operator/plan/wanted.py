"""All objects of a service, in the order in which they are applied."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tidemark_operator import api
from tidemark_operator.plan import (
    admin_secret,
    cluster_service,
    config_map,
    deployment,
    disruption_budget,
    engine_config,
    evaluation,
    network_policy,
    service_account,
)
from tidemark_operator.plan import facts as facts_


def wanted(service: api.InferenceService, facts: facts_.Facts) -> list[dict[str, Any]]:
    """Kubernetes objects that should exist: fresh dictionaries, the same for the same arguments.

    What pods need to start comes before the Deployment. Without a token in `facts` there is no Secret with it, and the
    pods wait: an empty one would be worse.
    """
    engine = engine_config.engine(service)
    access, own_account = service.spec.access, service.spec.pod_template.service_account_name
    return [
        *([service_account.build(service)] if own_account is None else []),
        *([admin_secret.build(service, facts)] if facts.admin_token else []),
        config_map.build(service, engine),
        *([network_policy.build(service, facts)] if access.allow_from else []),
        *([disruption_budget.build(service)] if disruption_budget.helps(service) else []),
        cluster_service.build(service, engine),
        deployment.build(service, engine, facts),
        *([job] if (job := evaluation.build(service, engine, facts)) is not None else []),
    ]


def to_yaml(objects: list[dict[str, Any]]) -> str:
    """One YAML document an object, the same bytes for the same objects."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, so that the engine's configuration can be read."""


_NUMBER_ELSEWHERE = re.compile(r"[-+]?(?:\.\d+|\d[\d_]*(?:\.\d*)?)(?:[eE][-+]?\d+)?|0[xob][\da-fA-F_]+|[yYnN]")
"""Texts that PyYAML would write without quotes, and that kubectl's YAML reader takes for numbers or booleans (B075)."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    if "\x85" in value:  # a line break to YAML readers, and PyYAML escapes it in this style only (B075)
        style: str | None = '"'
    else:
        style = "|" if "\n" in value else "'" if _NUMBER_ELSEWHERE.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
