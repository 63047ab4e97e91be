"""The engine's configuration file, made from the spec: only what the spec says, the rest is the engine's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from tidemark_operator import api, effects
from tidemark_operator.api import quantities
from tidemark_operator.plan import layout
from tidemark_runtime.contract import http, settings

LAME_DUCK_SECONDS = 5
"""After SIGTERM a pod says that it is not ready and still takes requests: so long it may take until every node has
heard that the pod is going. The engine does it rather than a preStop hook, because the engine knows: it closes
connections that are kept alive with their next answer, and a client never writes into one that is being closed."""


def build(service: api.InferenceService) -> dict[str, dict[str, Any]]:
    """Sections and keys in camelCase, as `tidemark serve --config` reads them; keys without a value left out."""
    spec = service.spec
    keys, tls = spec.access.api_keys_secret_ref, spec.access.tls_secret_ref
    sections: dict[str, dict[str, Any]] = {
        "model": {
            "source": layout.model_source(spec.model.source),
            "name": service.model_name,
            "dtype": spec.model.weights.dtype,
            "quantization": effects.acting(service, "model.weights.quantization"),
            "maxContextTokens": spec.model.max_context_tokens,
        },
        "kvCache": {
            "dtype": effects.acting(service, "kvCache.dtype"),
            "blockSize": spec.kv_cache.block_size,
            "memoryUtilization": spec.kv_cache.memory_utilization,
        },
        "scheduler": {
            "maxNumSeqs": spec.scheduler.max_num_seqs,
            "maxNumBatchedTokens": spec.scheduler.max_num_batched_tokens,
            "maxQueuedRequests": spec.overload.max_queued_requests,
            "maxQueueSeconds": spec.overload.max_queue_seconds,
            "maxPreemptionsPerRequest": spec.scheduler.preemption.max_per_request,
        },
        "server": {
            "host": "0.0.0.0",
            "port": http.CONTAINER_PORT,
            "apiKeysFile": layout.keys_path(keys) if keys else None,
            "adminTokenFile": layout.ADMIN_TOKEN_PATH,
            "tlsCertFile": layout.TLS_CERT_PATH if tls else None,
            "tlsKeyFile": layout.TLS_KEY_PATH if tls else None,
            "lameDuckSeconds": LAME_DUCK_SECONDS,
            "drainSeconds": LAME_DUCK_SECONDS + spec.rollout.drain_seconds,  # the engine counts both from SIGTERM
        },
        "hardware": _hardware(spec.hardware),
    }
    kept = {
        name: {key: value for key, value in section.items() if value is not None} for name, section in sections.items()
    }
    return {name: section for name, section in kept.items() if section}


def dump(config: dict[str, dict[str, Any]]) -> str:
    """YAML text, the same bytes for the same configuration."""
    return yaml.safe_dump(config, sort_keys=True, allow_unicode=True, width=120)


def parse(service: api.InferenceService) -> settings.EngineConfig:
    """The configuration as the engine reads it. `settings.ConfigError` here is an error of ours: `api` let it pass."""
    return settings.parse(build(service))


@dataclass(frozen=True, slots=True)
class Engine:
    """What builders ask of the configuration, parsed once a plan, because a thousand services are planned often."""

    text: str
    """The file."""
    config_hash: str
    """What an engine reports once all settings are in force."""
    restart_hash: str
    """Names the settings that need a new process; a hot change leaves it as it is."""
    scheme: str
    """`https` where the engines have a certificate, else `http`."""


def engine(service: api.InferenceService) -> Engine:
    """Of this service's pods."""
    document = build(service)
    parsed = settings.parse(document)
    return Engine(
        dump(document), settings.config_hash(parsed), settings.restart_hash(parsed), settings.url_scheme(parsed)
    )


def config_hash(service: api.InferenceService) -> str:
    """The hash that an engine reports once all settings of this spec are in force."""
    return settings.config_hash(parse(service))


def restart_hash(service: api.InferenceService) -> str:
    """Names the settings that need a new process; a hot change leaves it as it is."""
    return settings.restart_hash(parse(service))


def _hardware(hardware: api.Hardware) -> dict[str, Any]:
    if hardware.resource_name != "cpu":
        return {}
    memory = quantities.to_bytes(hardware.memory) if hardware.memory else None
    return {"threads": hardware.count, "memory": memory}
