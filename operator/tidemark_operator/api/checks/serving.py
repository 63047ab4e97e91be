"""Rules about what runs together: `scheduler`, `watermarks`, `overload` and `speculative`."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator import errors
from tidemark_operator.api import describe, engine, view
from tidemark_operator.api.checks import rule as rule_
from tidemark_runtime.contract import settings


def budget_serves_the_batch(doc: view.View) -> Iterator[rule_.Found]:
    at = ("spec", "scheduler")
    budget, batch = doc.get(*at, "maxNumBatchedTokens"), doc.get(*at, "maxNumSeqs")
    defaults = settings.EngineConfig().scheduler
    budget = defaults.max_num_batched_tokens if budget is None else budget
    batch = defaults.max_num_seqs if batch is None else batch
    if budget < batch:
        yield (
            (*at, "maxNumBatchedTokens"),
            budget,
            f"at least scheduler.maxNumSeqs, {batch}",
            "Otherwise running sequences would not all get a token in a step. Raise it, or lower maxNumSeqs.",
        )


def soft_limit_within_batch(doc: view.View) -> Iterator[rule_.Found]:
    soft, hard = doc.get("spec", "scheduler", "maxConcurrencySoft"), doc.get("spec", "scheduler", "maxNumSeqs")
    hard = settings.EngineConfig().scheduler.max_num_seqs if hard is None else hard
    if soft is not None and soft > hard:
        yield (
            ("spec", "scheduler", "maxConcurrencySoft"),
            soft,
            f"at most scheduler.maxNumSeqs, {hard}",
            "No more than that ever run together. Lower it, or raise maxNumSeqs, which needs a restart.",
        )


def watermark_order(doc: view.View) -> Iterator[rule_.Found]:
    at = ("spec", "watermarks")
    queue, preempt, gap = (doc.get(*at, key) for key in ("queue", "preempt", "hysteresis"))
    if queue > preempt:
        yield (
            (*at, "queue"),
            queue,
            f"at most watermarks.preempt, {preempt:g}",
            "New requests wait before running ones are preempted. Lower it, or raise preempt.",
        )
    elif gap > queue:
        yield (
            (*at, "hysteresis"),
            gap,
            f"at most watermarks.queue, {queue:g}",
            "Below an empty slab use cannot fall, and the line would never be left. Lower it.",
        )


def degrade_says_whom_and_what(doc: view.View) -> Iterator[rule_.Found]:
    for index, rule in enumerate(doc.get("spec", "overload", "degrade")):
        at: describe.Loc = ("spec", "overload", "degrade", index)
        if not rule.get("keys") and rule.get("maxPriority") is None:
            yield (
                at,
                errors.Seen("neither"),
                "keys or maxPriority, so that it says whose requests it is about",
                f"maxPriority: {engine.MAX_PRIORITY} means everybody's.",
            )
        if rule.get("maxTokens") is None and rule.get("maxRequests") is None:
            yield (
                at,
                errors.Seen("neither"),
                "maxTokens or maxRequests, so that it has an effect",
                "Set one, or both.",
            )


def degrade_needs_key_file(doc: view.View) -> Iterator[rule_.Found]:
    if doc.get("spec", "access", "apiKeysSecretRef") is not None:
        return
    for index, rule in enumerate(doc.get("spec", "overload", "degrade")):
        if rule.get("keys"):
            yield (
                ("spec", "overload", "degrade", index, "keys"),
                rule["keys"],
                "no names, because access.apiKeysSecretRef is not set",
                "Only a key file gives names. Set it, or select by maxPriority.",
            )


def draft_needs_model(doc: view.View) -> Iterator[rule_.Found]:
    method, draft = doc.get("spec", "speculative", "method"), doc.get("spec", "speculative", "draftModel")
    at = ("spec", "speculative", "draftModel")
    if method == "draft" and draft is None:
        yield (
            at,
            errors.Seen("nothing"),
            "a model with speculative.method draft",
            "Name it, or choose the method ngram.",
        )
    elif method != "draft" and draft is not None:
        yield at, draft, f"nothing with speculative.method {method}", "Remove it, or choose the method draft."


def tokens_need_a_method(doc: view.View) -> Iterator[rule_.Found]:
    """The default asks for nothing: API servers write it into every resource."""
    at = ("spec", "speculative", "tokens")
    tokens, default = doc.get(*at), engine.Speculative().tokens
    if doc.get("spec", "speculative", "method") == "none" and tokens != default:
        yield (
            at,
            tokens,
            f"{default}, its default, with speculative.method none",
            "Nothing is guessed, so it has no effect. Remove it, or choose the method ngram or draft.",
        )


def draft_needs_a_folder(doc: view.View) -> Iterator[rule_.Found]:
    """The folder of both models is mounted, and that is never all of the machine."""
    at = ("spec", "model", "source", "hostPath", "path")
    path, draft = doc.get(*at), doc.get("spec", "speculative", "draftModel")
    if draft is not None and path is not None and len([part for part in path.split("/") if part not in ("", ".")]) < 2:
        yield (
            at,
            path,
            "a path below a folder that the draft model lies in, too, such as /srv/models/big.gguf",
            "That folder is mounted, and / never is. Move both models into one.",
        )
