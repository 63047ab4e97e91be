"""What an engine's own configuration quantizes, as something to evaluate."""

from __future__ import annotations

from pathlib import Path

from tidemark_runtime import config, errors
from tidemark_runtime.evaluation import configurations
from tidemark_runtime.planning import fixed_scales, precision_map
from tidemark_runtime.worker import precision

QUANTIZED_AT_LOAD = ("int8_weight_only", "fp8_weight_only")
"""Weights of which the unquantized ones are in the same files."""


def check(settings: config.EngineConfig) -> None:
    """Raises ConfigError where nothing is quantized that could be compared: known before anything is loaded."""
    kv_cache = settings.kv_cache
    quantized = kv_cache.dtype in config.QUANTIZED_KV_DTYPES or kv_cache.precision_file or kv_cache.precision
    if quantized or settings.model.quantization in QUANTIZED_AT_LOAD:
        return
    expected = (
        f"one of {', '.join(config.QUANTIZED_KV_DTYPES)}, or model.quantization of {' or '.join(QUANTIZED_AT_LOAD)}"
    )
    remedy = "Nothing of this configuration is quantized, so there is nothing to compare"
    raise errors.ConfigError([errors.Problem("kvCache.dtype", kv_cache.dtype, expected, remedy)])


def of(settings: config.EngineConfig, target: precision_map.Target, weights: str) -> configurations.Configuration:
    """`target.dtype`: what `auto` means. `weights`: `model.identity.of` the model. Raises ConfigError."""
    kv_cache, quantization = settings.kv_cache, settings.model.quantization
    dtype = target.dtype if kv_cache.dtype == config.AUTO else kv_cache.dtype
    aim = precision_map.Target(target.shape, dtype, target.keep_dtype, target.num_query_heads)
    segments = precision.choose(kv_cache, aim).segments
    scales = None if kv_cache.scales_file is None else configurations.read_scales(Path(kv_cache.scales_file))
    loaded = quantization if quantization in QUANTIZED_AT_LOAD else None
    parts = [dtype, "map" if segments else "", "scales" if scales else "", f"weights {loaded}" if loaded else ""]
    made = configurations.Configuration(
        " + ".join(part for part in parts if part), dtype, segments, scales, weights=loaded
    )
    if scales is not None:
        fixed_scales.of_layout(scales, made.layout(target.shape), weights)
    return made
