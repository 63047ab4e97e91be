"""Rules about what runs together: `scheduler`, `watermarks`, `overload` and `speculative`."""

from __future__ import annotations

from tidemark_operator.api import engine
from tidemark_operator.api.crd import cel
from tidemark_runtime.contract import settings


def scheduler() -> tuple[cel.Rule, ...]:
    at, defaults = "spec.scheduler", settings.EngineConfig().scheduler
    budget = cel.get(at, "maxNumBatchedTokens", defaults.max_num_batched_tokens)
    batch = cel.get(at, "maxNumSeqs", defaults.max_num_seqs)
    return (
        cel.Rule(
            "budget_serves_the_batch",
            at,
            f"{budget} >= {batch}",
            "got %s, expected at least scheduler.maxNumSeqs, %s. Otherwise running sequences would not all get a token "
            "in a step. Raise it, or lower maxNumSeqs.",
            (budget, batch),
            ".maxNumBatchedTokens",
        ),
        cel.Rule(
            "soft_limit_within_batch",
            at,
            f"!has(self.maxConcurrencySoft) || self.maxConcurrencySoft <= {batch}",
            "got %s, expected at most scheduler.maxNumSeqs, %s. No more than that ever run together. Lower it, or "
            "raise maxNumSeqs, which needs a restart.",
            ("self.maxConcurrencySoft", batch),
            ".maxConcurrencySoft",
        ),
    )


def watermarks() -> tuple[cel.Rule, ...]:
    at = "spec.watermarks"
    queue, preempt, gap = (cel.get(at, key) for key in ("queue", "preempt", "hysteresis"))
    return (
        cel.Rule(
            "watermark_order",
            at,
            f"{queue} <= {preempt}",
            "got %s, expected at most watermarks.preempt, %s. New requests wait before running ones are preempted. "
            "Lower it, or raise preempt.",
            (queue, preempt),
            ".queue",
        ),
        cel.Rule(
            "watermark_order",
            at,
            f"{queue} > {preempt} || {gap} <= {queue}",
            "got %s, expected at most watermarks.queue, %s. Below an empty slab use cannot fall, and the line would "
            "never be left. Lower it.",
            (gap, queue),
            ".hysteresis",
        ),
    )


def overload() -> tuple[cel.Rule, ...]:
    rule = "spec.overload.degrade[]"
    return (
        cel.Rule(
            "degrade_says_whom_and_what",
            rule,
            "has(self.maxPriority) || has(self.keys) && self.keys.size() > 0",
            "got neither, expected keys or maxPriority, so that it says whose requests it is about. "
            f"maxPriority: {engine.MAX_PRIORITY} means everybody's.",
        ),
        cel.Rule(
            "degrade_says_whom_and_what",
            rule,
            "has(self.maxTokens) || has(self.maxRequests)",
            "got neither, expected maxTokens or maxRequests, so that it has an effect. Set one, or both.",
        ),
        cel.Rule(
            "degrade_needs_key_file",
            "spec",
            f"{cel.has('access.apiKeysSecretRef')} || !{cel.has('overload.degrade')} "
            "|| self.overload.degrade.all(rule, !has(rule.keys) || rule.keys.size() == 0)",
            "got names in keys, expected none, because access.apiKeysSecretRef is not set. Only a key file gives "
            "names. Set it, or select by maxPriority.",
            field=".overload.degrade",
        ),
    )


def speculative() -> tuple[cel.Rule, ...]:
    at = "spec.speculative"
    method, tokens, default = cel.get(at, "method"), cel.get(at, "tokens"), engine.Speculative().tokens
    part = "([^/.]|[.][^/])[^/]*"  # of a path, and not "."
    return (
        cel.Rule(
            "draft_needs_model",
            at,
            f"{method} != 'draft' || has(self.draftModel)",
            "got nothing, expected a model with speculative.method draft. Name it, or choose the method ngram.",
            field=".draftModel",
        ),
        cel.Rule(
            "draft_needs_model",
            at,
            f"{method} == 'draft' || !has(self.draftModel)",
            "got %s, expected nothing with speculative.method %s. Remove it, or choose the method draft.",
            ("self.draftModel", method),
            ".draftModel",
        ),
        cel.Rule(
            "tokens_need_a_method",
            at,
            f"{method} != 'none' || {tokens} == {default}",
            f"got %s, expected {default}, its default, with speculative.method none. Nothing is guessed, so it has no "
            "effect. Remove it, or choose the method ngram or draft.",
            (tokens,),
            ".tokens",
        ),
        cel.Rule(
            "draft_needs_a_folder",
            "spec",
            f"!{cel.has('speculative.draftModel')} || !{cel.has('model.source.hostPath')} "
            f"|| self.model.source.hostPath.path.matches('^(/|[.]/)*{part}/(/|[.]/)*{part}')",
            "got %s, expected a path below a folder that the draft model lies in, too, such as /srv/models/big.gguf. "
            "That folder is mounted, and / never is. Move both models into one.",
            ("self.model.source.hostPath.path",),
            ".model.source.hostPath.path",
        ),
    )
