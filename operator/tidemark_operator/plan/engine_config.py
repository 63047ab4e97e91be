"""The engine's configuration file, made from the spec: only what the spec says, the rest is the engine's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pydantic
import yaml

from tidemark_operator import api, effects
from tidemark_operator.api import quantities
from tidemark_operator.plan import layout
from tidemark_runtime.contract import http, settings

_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The one in C where PyYAML has it: the other takes most of a plan's time."""

LAME_DUCK_SECONDS = 5
"""After SIGTERM a pod says that it is not ready and still takes requests: so long it may take until every node has
heard that the pod is going. The engine does it rather than a preStop hook, because the engine knows: it closes
connections that are kept alive with their next answer, and a client never writes into one that is being closed."""


def build(service: api.InferenceService) -> dict[str, dict[str, Any]]:
    """Sections and keys in camelCase, as `tidemark serve --config` reads them; keys without a value left out.

    The fields that name their setting of the engine, and what is made of several fields or of none.
    """
    sections = _linked(service)
    made: dict[str, dict[str, Any]] = {
        "model": {"source": layout.model_source(service.spec), "name": service.model_name},
        "kvCache": {**_precision(service.spec.kv_cache.precision), **_scales(service.spec.kv_cache.scales_ref)},
        "speculative": {"draftModel": layout.draft_model(service.spec)},
        "server": _server(service.spec),
        "hardware": _hardware(service.spec.hardware),
    }
    for name, values in made.items():
        sections.setdefault(name, {}).update({key: value for key, value in values.items() if value is not None})
    return {name: section for name, section in sections.items() if section}


def dump(config: dict[str, dict[str, Any]]) -> str:
    """YAML text, the same bytes for the same configuration."""
    text: str = yaml.dump(config, Dumper=_DUMPER, sort_keys=True, allow_unicode=True, width=120)
    return text


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


def soft_limit(service: api.InferenceService) -> int:
    """Requests that the spec lets run at once in an engine."""
    scheduler = parse(service).scheduler
    return min(scheduler.max_concurrency_soft or scheduler.max_num_seqs, scheduler.max_num_seqs)


def _linked(service: api.InferenceService) -> dict[str, dict[str, Any]]:
    """What the spec says of the engine's settings, field by field."""
    sections: dict[str, dict[str, Any]] = {}
    for link in api.engine_links():
        value = link.value(service.spec)
        if value not in (None, []) and effects.acts(link.path, value):
            sections.setdefault(link.section, {})[link.name] = _plain(value, link.size)
    return sections


def _plain(value: Any, size: bool) -> Any:
    """As a YAML file holds it; a size as the number of its bytes, because the engine does not know all of Kubernetes'
    units."""
    if isinstance(value, list):
        return [_plain(item, size) for item in value]
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(by_alias=True, exclude_none=True)
    return quantities.to_bytes(value) if size else value


def _precision(wanted: api.Precision) -> dict[str, Any]:
    if wanted.map_ref is not None:
        return {"precisionFile": layout.PRECISION_PATH}
    rules = [{"layers": _joined(wanted.keep_layers)}] if wanted.keep_layers else []
    rules += [{"layers": layer, "heads": _joined(heads)} for layer, heads in wanted.keep_heads.items() if heads]
    return {"precision": rules or None}


def _scales(wanted: api.ScalesRef | None) -> dict[str, Any]:
    return {} if wanted is None else {"scalesFile": layout.SCALES_PATH}


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _server(spec: api.Spec) -> dict[str, Any]:
    keys, tls = spec.access.api_keys_secret_ref, spec.access.tls_secret_ref
    return {
        "host": "0.0.0.0",
        "port": http.CONTAINER_PORT,
        "apiKeysFile": layout.keys_path(keys) if keys else None,
        "adminTokenFile": layout.ADMIN_TOKEN_PATH,
        "tlsCertFile": layout.TLS_CERT_PATH if tls else None,
        "tlsKeyFile": layout.TLS_KEY_PATH if tls else None,
        "lameDuckSeconds": LAME_DUCK_SECONDS,
        "drainSeconds": LAME_DUCK_SECONDS + spec.rollout.drain_seconds,  # the engine counts both from SIGTERM
    }


def _hardware(hardware: api.Hardware) -> dict[str, Any]:
    """Devices share one model; of a processor's cores the engine makes threads. The device is always said: a pod that
    was given none must not take one that it happens to see, nor the other way round."""
    device = effects.device_of(hardware.resource_name)
    if hardware.resource_name != "cpu":
        return {"device": device, "tensorParallel": hardware.count if hardware.count > 1 else None}
    memory = quantities.to_bytes(hardware.memory) if hardware.memory else None
    return {"device": device, "threads": hardware.count, "memory": memory}
