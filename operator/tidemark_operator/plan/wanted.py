"""All objects of a service, in the order in which they are applied."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tidemark_operator import api
from tidemark_operator.plan import cluster_service, config_map, deployment, engine_config, service_account
from tidemark_operator.plan import facts as facts_
from tidemark_runtime.contract import settings


def wanted(service: api.InferenceService, facts: facts_.Facts) -> list[dict[str, Any]]:
    """Kubernetes objects that should exist: fresh dictionaries, the same for the same arguments.

    ServiceAccount (unless the spec names one) and ConfigMap come first, because pods need them to start.
    """
    objects = [config_map.build(service), deployment.build(service, facts), cluster_service.build(service)]
    if service.spec.pod_template.service_account_name is None:
        objects.insert(0, service_account.build(service))
    return objects


def config_hash(service: api.InferenceService) -> str:
    """The hash that an engine reports once all settings of this spec are in force."""
    return settings.config_hash(engine_config.parse(service))


def to_yaml(objects: list[dict[str, Any]]) -> str:
    """One YAML document an object, the same bytes for the same objects."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, so that the engine's configuration can be read."""


_NUMBER_ELSEWHERE = re.compile(r"[-+]?(?:\.\d+|\d[\d_]*(?:\.\d*)?)(?:[eE][-+]?\d+)?|0[xob][\da-fA-F_]+|[yYnN]")
"""Texts that PyYAML would write without quotes, and that kubectl's YAML reader takes for numbers or booleans (B075)."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _NUMBER_ELSEWHERE.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
