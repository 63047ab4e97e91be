"""The ConfigMap with the engine's configuration file."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, objects


def build(service: api.InferenceService, engine: engine_config.Engine) -> dict[str, Any]:
    annotations = {names.CONFIG_HASH_ANNOTATION: engine.config_hash}
    name = names.config_map(service.name, engine.restart_hash)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": objects.metadata(service, name, annotations),
        "data": {names.CONFIG_FILE: engine.text},
    }
