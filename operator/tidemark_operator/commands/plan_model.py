"""Which model a plan is for: its shape and the bytes of its weights, never guessed.

In this order: what `--model` names; what an engine has reported (`status.shape` of a manifest taken from a cluster);
the files, where the manifest's source lies on this machine; the table of models that `tidemark models` knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark_operator import api, errors, names
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_operator.plan import shapes
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import capacity, group_cuts, known_models, model_files, weight_bytes

GROUP_SIZE = 128
"""Of `--weights awq` and `gptq`, where nothing else is said: what most checkpoints have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a plan stands on."""

    name: str
    weights: str
    """Their format, in words."""
    shape: capacity.ModelShape
    overhead_bytes: int | None
    """Measured by an engine; None: the planner's own assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of the command line that name a model."""

    model: str | None = None
    weights: str | None = None
    group_size: int = GROUP_SIZE


def find(service: api.InferenceService, asked: Asked, environment: Mapping[str, str]) -> Basis:
    """Raises `ManifestError` where the shape is not known, with the option to give."""
    if asked.model is not None:
        return _named(service, asked.model, asked)
    if asked.weights is not None:
        expected = "a model beside it: --model NAME, since files and engines know their own format"
        raise _wrong("--weights", asked.weights, expected)
    reported, overhead_bytes = plan_capacity.known_shape(service, {"shape": service.status.get("shape")})
    if reported is not None and service.status.get("shape"):
        return Basis(
            name=service.model_name,
            weights="as an engine has reported",
            shape=reported,
            overhead_bytes=overhead_bytes,
        )
    path = _local_path(service, environment)
    if path is not None:
        return _from_file(service, path, _name(path))
    if reported is not None and service.spec.model.source.package is not None:
        weights = "as stored" if shapes.has_kernels(service) else "expanded: no kernel of ours runs there"
        return Basis(name=service.spec.model.source.package.name, weights=weights, shape=reported, overhead_bytes=None)
    raise _unknown(service)


def _named(service: api.InferenceService, model: str, asked: Asked) -> Basis:
    known = known_models.MODELS.get(model.lower())
    if known is None:
        path = Path(model).expanduser()
        if not path.exists():
            expected = f"a path on this machine, or one of {', '.join(known_models.MODELS)}"
            raise _wrong("--model", model, expected)
        if asked.weights is not None:
            raise _wrong("--weights", asked.weights, "no format beside a file: its own is read from it")
        return _from_file(service, path, _name(path.resolve()))
    name, dtype = asked.weights or _format(service), shapes.weights_dtype(service, "bfloat16")
    if name not in weight_bytes.FORMATS:
        raise _wrong("--weights", name, f"one of {', '.join(weight_bytes.FORMATS)}")
    if not shapes.has_kernels(service) and name not in weight_bytes.UNQUANTIZED_BYTES:
        label, name = f"{name}, expanded to {dtype}: no kernel of ours runs there", dtype
    else:
        label = f"{name}, groups of {asked.group_size}" if name in weight_bytes.PACKED else name
    try:
        num_bytes = weight_bytes.weights_bytes(known.matrices, name, group_size=asked.group_size, tables=dtype)
    except ValueError as error:
        raise _wrong("--group-size", asked.group_size, f"-1 or a divisor of the model's widths ({error})") from error
    if name in weight_bytes.PACKED:
        group_cuts.check_packed(known.matrices, asked.group_size, _num_devices(service), f"{known.name} in {name}")
    return Basis(name=known.name, weights=label, shape=known.shape(num_bytes), overhead_bytes=None)


def cut_groups(service: api.InferenceService, environment: Mapping[str, str]) -> str:
    """What is wrong with dividing the model among the devices of a pod, by the headers of its files where they lie on
    this machine; empty: nothing, or they do not lie here, or cannot be read, which others say."""
    path = _local_path(service, environment)
    if path is None or _num_devices(service) == 1:
        return ""
    try:
        group_cuts.check(model_files.read(path), _num_devices(service))
    except capacity.CapacityError as error:
        return str(error)
    except settings.ConfigError:
        return ""
    return ""


def _num_devices(service: api.InferenceService) -> int:
    """That share the model."""
    hardware = service.spec.hardware
    return 1 if hardware.resource_name == shapes.CPU else hardware.count


def _from_file(service: api.InferenceService, path: Path, name: str) -> Basis:
    held, shape = read_file(service, path, service.spec.model.weights.quantization)
    group_cuts.check(model_files.read(path), _num_devices(service))
    return Basis(name=name, weights=held.format, shape=shape, overhead_bytes=None)


def read_file(
    service: api.InferenceService, path: Path, quantization: str
) -> tuple[model_files.Held, capacity.ModelShape]:
    """What the headers at `path` say, held as the device of `service` holds it. Raises `ConfigError`."""
    found = model_files.read(path)
    dtype, has_kernels = shapes.weights_dtype(service, found.dtype), shapes.has_kernels(service)
    held = model_files.held(found, dtype=dtype, quantization=quantization, has_kernels=has_kernels)
    return held, known_models.shape_of(found.matrices, found.max_context_tokens, held.num_bytes)


def _name(path: Path) -> str:
    """A folder's own name may have dots in it."""
    return path.name if path.is_dir() else path.stem


def _format(service: api.InferenceService) -> str:
    """What the manifest says; without a word the model's 16 bits, or the dtype that this machine is sure to compute."""
    quantization = service.spec.model.weights.quantization
    return (
        shapes.weights_dtype(service, "bfloat16")
        if quantization in (model_files.AUTO, model_files.NONE)
        else quantization
    )


def _local_path(service: api.InferenceService, environment: Mapping[str, str]) -> Path | None:
    source = service.spec.model.source
    if source.host_path is not None:
        path = Path(source.host_path.path)
        return path if path.exists() else None
    if source.package is not None:
        path = store(environment) / f"{source.package.name}.gguf"
        return path if path.is_file() else None
    return None


def store(environment: Mapping[str, str]) -> Path:
    """Where `tidemark models fetch` puts models."""
    chosen = environment.get(names.MODEL_STORE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "tidemark" / "models"


def environment() -> Mapping[str, str]:
    """Of this process."""
    return os.environ


def _unknown(service: api.InferenceService) -> errors.ManifestError:
    source = service.spec.model.source.model_dump(exclude_none=True, by_alias=True)
    remedy = (
        "Name it: --model NAME for a known one, or --model PATH for a .gguf file, a Hugging Face folder or a "
        f"config.json on this machine. Known: {', '.join(known_models.MODELS)}. A manifest from a cluster (`kubectl "
        f"get inferenceservice {service.name} -o yaml`) has the shape in its status once an engine has loaded the model"
    )
    problem = errors.Problem("spec.model.source", source, "a model that this machine can look into", remedy)
    return errors.ManifestError([problem], service.name)


def _wrong(option: str, seen: object, expected: str) -> errors.ManifestError:
    return errors.ManifestError([errors.Problem(option, seen, expected)])
