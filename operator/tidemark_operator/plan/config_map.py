"""The ConfigMap with the engine's configuration file."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, objects
from tidemark_runtime.contract import settings


def build(service: api.InferenceService) -> dict[str, Any]:
    annotations = {names.CONFIG_HASH_ANNOTATION: settings.config_hash(engine_config.parse(service))}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": objects.metadata(service, names.config_map(service.name), annotations),
        "data": {names.CONFIG_FILE: engine_config.dump(engine_config.build(service))},
    }
