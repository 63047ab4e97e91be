"""What is wrong with settings that are right one by one: each rule looks at more than one of them."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_runtime import config, errors
from tidemark_runtime.config_parsing import catalogue


def find(made: config.EngineConfig) -> Iterator[errors.Problem]:
    """Every one of them."""
    scheduler, kv_cache = made.scheduler, made.kv_cache
    if scheduler.max_num_batched_tokens < scheduler.max_num_seqs:
        yield errors.Problem(
            "scheduler.maxNumBatchedTokens",
            scheduler.max_num_batched_tokens,
            f"at least scheduler.maxNumSeqs, {scheduler.max_num_seqs}",
            "Otherwise running sequences would not all get a token in a step. Raise it, or lower maxNumSeqs.",
        )
    if kv_cache.precision and kv_cache.precision_file is not None:
        yield errors.Problem(
            "kvCache.precisionFile",
            kv_cache.precision_file,
            "either kvCache.precision or kvCache.precisionFile",
            "Remove one of them.",
        )
    yield from _of_kv_cache(kv_cache)
    yield from _of_lines(scheduler)
    for position, rule in enumerate(made.overload.degrade):
        yield from _of_rule(rule, f"overload.degrade[{position}]", made.server)
    yield from _of_speculative(made.speculative)
    yield from _of_server(made.server)
    if kv_cache.memory is not None and kv_cache.num_pages is not None:
        yield errors.Problem(
            "kvCache.numPages",
            kv_cache.num_pages,
            "either kvCache.memory or kvCache.numPages",
            "Both say how large the slab is. Remove one.",
        )


def lossy_problem(key: str, dtype: str) -> errors.Problem:
    """`dtype` loses too much to be chosen without saying so."""
    remedy = (
        f"{config.LOSSY_COST}. Measure your own model: tidemark eval MODEL --kv-cache-dtype {dtype}. "
        "Then choose int8, or accept the loss: kvCache.allowLossy: true (--allow-lossy true)"
    )
    return errors.Problem(key, dtype, f"{dtype} only together with kvCache.allowLossy: true", remedy)


def _of_kv_cache(kv_cache: config.KVCacheConfig) -> Iterator[errors.Problem]:
    named = {"kvCache.dtype": kv_cache.dtype}
    named |= {f"kvCache.precision[{index}].dtype": rule.dtype for index, rule in enumerate(kv_cache.precision)}
    if not kv_cache.allow_lossy:
        for key, dtype in named.items():
            if dtype in config.LOSSY_KV_DTYPES:
                yield lossy_problem(key, dtype)
    may_be_quantized = kv_cache.precision_file is not None or set(named.values()) & set(config.QUANTIZED_KV_DTYPES)
    if kv_cache.scales_file is not None and not may_be_quantized:
        yield errors.Problem(
            "kvCache.scalesFile",
            kv_cache.scales_file,
            f"none with kvCache.dtype {kv_cache.dtype}",
            "Nothing is quantized, so nothing has a scale. Set kvCache.dtype to the dtype of the file, or remove it.",
        )


def _of_lines(scheduler: config.SchedulerConfig) -> Iterator[errors.Problem]:
    queue, preempt, hysteresis = (
        scheduler.queue_watermark,
        scheduler.preempt_watermark,
        scheduler.watermark_hysteresis,
    )
    if queue > preempt:
        yield errors.Problem(
            "scheduler.queueWatermark",
            queue,
            f"at most scheduler.preemptWatermark, {catalogue.plain(preempt)}",
            "New requests wait before running ones are preempted. Lower it, or raise preemptWatermark.",
        )
    if hysteresis > queue:
        yield errors.Problem(
            "scheduler.watermarkHysteresis",
            hysteresis,
            f"at most scheduler.queueWatermark, {catalogue.plain(queue)}",
            "Below an empty slab use cannot fall, and the line would never be left. Lower it.",
        )
    soft = scheduler.max_concurrency_soft
    if soft is not None and soft > scheduler.max_num_seqs:
        yield errors.Problem(
            "scheduler.maxConcurrencySoft",
            soft,
            f"at most scheduler.maxNumSeqs, {scheduler.max_num_seqs}",
            "More can never run. Lower it, or raise maxNumSeqs, which needs a restart.",
        )


def _of_rule(rule: config.DegradeRule, key: str, server: config.ServerConfig) -> Iterator[errors.Problem]:
    if not rule.keys and rule.max_priority is None:
        expected = "keys or maxPriority, so that it says whose requests it is about"
        yield errors.Problem(key, "neither", expected, f"maxPriority: {config.PRIORITY_MAX} means everybody's.")
    if rule.max_tokens is None and rule.max_requests is None:
        yield errors.Problem(key, "neither", "maxTokens or maxRequests, so that it has an effect", "Set one, or both.")
    if rule.keys and server.api_keys_file is None:
        expected = "no names, because server.apiKeysFile is not set"
        remedy = "Only a key file gives names. Set it, or select by maxPriority."
        yield errors.Problem(f"{key}.keys", list(rule.keys), expected, remedy)


def _of_speculative(speculative: config.SpeculativeConfig) -> Iterator[errors.Problem]:
    method, draft = speculative.method, speculative.draft_model
    if method == "draft" and draft is None:
        expected = "a model, because speculative.method is draft"
        yield errors.Problem("speculative.draftModel", None, expected, "Name it, or choose the method ngram.")
    elif method != "draft" and draft is not None:
        expected = f"nothing with speculative.method {method}"
        yield errors.Problem("speculative.draftModel", draft, expected, "Remove it, or choose the method draft.")
    default = config.SpeculativeConfig().tokens  # whoever writes all settings down writes this, and asks for nothing
    if method == "none" and speculative.tokens != default:
        expected = f"{default}, its default, with speculative.method none"
        remedy = "Nothing is guessed, so it has no effect. Remove it, or choose the method ngram or draft."
        yield errors.Problem("speculative.tokens", speculative.tokens, expected, remedy)


def _of_server(server: config.ServerConfig) -> Iterator[errors.Problem]:
    if (server.tls_cert_file is None) != (server.tls_key_file is None):
        missing = "server.tlsCertFile" if server.tls_cert_file is None else "server.tlsKeyFile"
        other = "server.tlsKeyFile" if server.tls_cert_file is None else "server.tlsCertFile"
        expected = f"a PEM file, because {other} is set"
        yield errors.Problem(missing, None, expected, "TLS needs both. Set both, or neither.")
    if server.lame_duck_seconds > server.drain_seconds:
        yield errors.Problem(
            "server.lameDuckSeconds",
            server.lame_duck_seconds,
            f"at most server.drainSeconds, {catalogue.plain(server.drain_seconds)}",
            "Both count from SIGTERM, and after drainSeconds the process ends. Lower it, or raise drainSeconds.",
        )
