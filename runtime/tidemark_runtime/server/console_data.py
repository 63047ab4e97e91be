"""Builds the console's document from what is known now: the same stats that `/metrics` and `/status` are made of."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tidemark_runtime import config, config_parsing
from tidemark_runtime.contract import console, settings
from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages
from tidemark_runtime.server import console_advice, console_listing, context, counters, status

ID_DIGITS = 8
"""Of an answer's id: enough to find it among those of an hour, and no more than that."""


def build(shared: context.Context, version: str, listed: console_listing.Listed | None) -> console.Document:
    """`listed`: what the engine said last of its sequences. Everything else is of this moment."""
    now = status.build(shared, version)
    stats = shared.engine.stats if shared.engine is not None else messages.EngineStats()
    return console.Document(
        status=now,
        at=time.time(),
        batch=_batch(stats),
        totals=_totals(shared.metrics, stats),
        advice=console_advice.of(
            now,
            max_queue_seconds=shared.config.scheduler.max_queue_seconds,
            knows_all_keys=not shared.unknown_keys,
        ),
        settings=list(_settings(shared.config)),
        requests=None if listed is None else _requests(shared, listed),
        crossings=[] if listed is None else list(_crossings(listed)),
    )


def _batch(stats: messages.EngineStats) -> console.Batch:
    return console.Batch(
        step=stats.steps,
        sequences=stats.step_sequences,
        tokens=stats.step_tokens,
        prompt_tokens=stats.step_prompt_tokens,
        schedule_seconds=stats.schedule_seconds,
        execute_seconds=stats.execute_seconds,
        update_seconds=stats.update_seconds,
    )


def _totals(metrics: counters.ServerMetrics, stats: messages.EngineStats) -> console.Totals:
    refused = metrics.totals(names.REJECTED)
    return console.Totals(
        requests_by_outcome=metrics.totals(names.REQUESTS),
        refused_by_reason={reason: count for reason, count in refused.items() if count},
        prompt_tokens=metrics.totals(names.PROMPT_TOKENS)[""],
        generated_tokens=metrics.totals(names.GENERATED_TOKENS)[""],
        prefix_hit_tokens=stats.prefix_hit_tokens_total,
        prefix_missed_tokens=stats.prefix_missed_tokens_total,
        page_evictions=stats.page_evictions_total,
        preemptions_swap=stats.preemptions_swap_total,
    )


def _settings(parsed: config.EngineConfig) -> Iterator[console.Setting]:
    document = config_parsing.to_mapping(parsed)
    defaults = config_parsing.to_mapping(config.EngineConfig())
    for entry in config_parsing.entries():
        if entry.key in settings.HOT_KEYS:
            section, _, name = entry.key.partition(".")
            yield console.Setting(entry.key, document[section][name], defaults[section][name])


def _requests(shared: context.Context, listed: console_listing.Listed) -> console.Requests:
    answer, age = listed.answer, max(0.0, shared.clock() - listed.at)
    return console.Requests(
        age_seconds=age,
        step=answer.steps,
        running=answer.running,
        waiting=answer.waiting,
        pages_used=answer.pages_used,
        pages_held=answer.pages_held,
        pages_swapped=answer.pages_swapped,
        largest=[_request(each, listed.keys, age) for each in answer.sequences],
    )


def _request(facts: messages.SequenceFacts, keys: Mapping[str, str], age: float) -> console.Request:
    answer_id, _, choice = facts.id.partition("-")
    return console.Request(
        id=f"{answer_id[:ID_DIGITS]}-{choice}",
        key=keys.get(answer_id, ""),
        state=facts.state.value,
        lane=facts.lane,
        priority=facts.priority,
        prompt_tokens=facts.prompt_tokens,
        cached_tokens=facts.cached_tokens,
        generated_tokens=facts.generated_tokens,
        most_tokens=facts.most_tokens,
        pages=facts.pages,
        swapped_pages=facts.swapped_pages,
        preemptions=facts.preemptions,
        age_seconds=facts.age_seconds + age,
    )


def _crossings(listed: console_listing.Listed) -> Iterator[console.Crossing]:
    for each in listed.answer.crossings:
        at = listed.unix_time - each.ago_seconds
        yield console.Crossing(each.level, at, each.lasted_seconds, each.over, each.pages_used)
