"""The drill: load drives the engine over one line, then the other, and ends. What everybody says is written down."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from alerting import inbox
from drill import load as load_
from drill import timeline, watch
from drill.site import NAME, SOFT_LIMIT, Site
from drill.timeline import Step, Timeline
from drill.watch import PREEMPT, QUEUE

QUEUE_LOAD = load_.Shape(clients=12, prompt_tokens=98, output_tokens=12)
"""Seven pages each from first to last: those that it takes to the queue line run, and the others wait."""
PREEMPT_PROMPT_TOKENS, PREEMPT_SHARE = 34, 0.95
"""Three pages at the start, so that many begin, and this share of all pages in the end: they outgrow the slab, and even
the last that is left stands above the line. With shorter answers use falls below it too often."""
BLOCK_TOKENS = 16
PATIENCE_SECONDS = 150.0
"""For what is due at once; what has to last in the rules' own time comes on top."""
ALERT_SECONDS = 20 * 60
"""Longest time of the rules from a crossing to a message, and from its end to the next one, by their own clock."""
HELD_SECONDS = 60 + 6 * 30
"""The operator's own clock: a calm minute, and the steps in which a limit comes back."""


@dataclass(frozen=True)
class Result:
    line: Timeline
    firing: dict[str, inbox.Note]
    """Alert -> its first message."""
    resolved: dict[str, inbox.Note]
    events: dict[str, dict[str, Any]]
    """Reason -> the first event."""
    lowered_to: int
    answers: dict[str, dict[int, int]]
    """Load -> HTTP status -> how many; streams that its end cut off are among them."""
    second_load: load_.Shape


def run(site: Site) -> Result:
    """Raises `AssertionError` with what did not come."""
    seen, line = watch.Watch(site), Timeline()
    patience = PATIENCE_SECONDS + ALERT_SECONDS / site.clock
    line.mark("queue-load", f"load begins: {QUEUE_LOAD}")
    with contextlib.ExitStack() as first:
        load = first.enter_context(load_.running(site.engine_url, NAME, QUEUE_LOAD))
        timeline.until(_over_the_queue_line(seen), patience)
        line.mark("queue-condition", "condition `MemoryPressure` is True", _transition(seen))
        line.mark("preempt-load", f"another load instead: {preempt_load(site)}")
        with load_.running(site.engine_url, NAME, preempt_load(site)) as second:
            first.close()
            timeline.until(_over_the_preempt_line(seen), patience)
            lowered_to = seen.limit()
            line.mark("load-end", "the load ends")
    answers = {"first": dict(load.counts), "second": dict(second.counts)}
    timeline.until(_calm(seen), patience + HELD_SECONDS)
    line.mark("silent", "Alertmanager has no alert of memory any more")
    line.mark("gone", "condition `MemoryPressure` is False", _transition(seen))
    _write_down(line, seen)
    firing, resolved = (
        {name: _note(seen, name, is_firing) for name in (QUEUE, PREEMPT)} for is_firing in (True, False)
    )
    return Result(line, firing, resolved, seen.events(), lowered_to, answers, preempt_load(site))


def preempt_load(site: Site) -> load_.Shape:
    pages = int(PREEMPT_SHARE * site.num_pages)
    return load_.Shape(16, PREEMPT_PROMPT_TOKENS, BLOCK_TOKENS * (pages - 1) - PREEMPT_PROMPT_TOKENS)


def _transition(seen: watch.Watch) -> float:
    return timeline.unix(seen.pressure()["lastTransitionTime"])


def _note(seen: watch.Watch, alert: str, is_firing: bool) -> inbox.Note:
    note = seen.note(alert, is_firing)
    assert note is not None, f"no message about {alert}"
    return note


def _over_the_queue_line(seen: watch.Watch) -> list[Step]:
    return [
        Step("Prometheus has the queue line crossed", lambda: seen.crossed("queue")),
        Step("MemoryPressure is True", lambda: seen.pressure().get("status") == "True"),
        Step("an event says so", lambda: {"AboveQueueLine", "AbovePreemptLine"} & set(seen.events())),
        Step(f"{QUEUE} is firing", lambda: seen.firing(QUEUE)),
        Step("its message came", lambda: seen.note(QUEUE, True)),
    ]


def _over_the_preempt_line(seen: watch.Watch) -> list[Step]:
    return [
        Step("Prometheus has the preempt line crossed", lambda: seen.crossed("preempt")),
        Step("events AbovePreemptLine, SoftLimitLowered",
             lambda: {"AbovePreemptLine", "SoftLimitLowered"} <= set(seen.events())),
        Step("a lower limit", lambda: seen.limit() < SOFT_LIMIT),
        Step("the engine runs it", lambda: not seen.is_as_the_spec_says()),
        Step("Prometheus has seen that", lambda: seen.scraped_config(is_first=False)),
        Step(f"{PREEMPT} is firing", lambda: seen.firing(PREEMPT)),
        Step("its message came", lambda: seen.note(PREEMPT, True)),
        Step(f"{QUEUE} is held back", lambda: seen.is_inhibited(QUEUE)),
    ]  # fmt: skip


def _calm(seen: watch.Watch) -> list[Step]:
    return [
        Step("both lines are left", lambda: not seen.crossed("queue") and not seen.crossed("preempt")),
        Step("MemoryPressure is False", lambda: seen.pressure().get("status") == "False"),
        Step("events MemoryPressureGone, SoftLimitRestored",
             lambda: {"MemoryPressureGone", "SoftLimitRestored"} <= set(seen.events())),
        Step("the limit of the spec", lambda: seen.limit() == SOFT_LIMIT),
        Step("the engine runs it", seen.is_as_the_spec_says),
        Step("Prometheus has seen that", lambda: seen.scraped_config(is_first=True)),
        Step(f"the message that {PREEMPT} is over", lambda: seen.note(PREEMPT, False)),
        Step(f"the message that {QUEUE} is over", lambda: seen.note(QUEUE, False)),
        Step("Alertmanager has no alert of memory", seen.is_silent),
    ]  # fmt: skip


def _write_down(line: Timeline, seen: watch.Watch) -> None:
    begin, second, end = (line.at[key] for key in ("queue-load", "preempt-load", "load-end"))
    for name, key, words, since in (
        (QUEUE, "queue", "queue line", begin),
        (PREEMPT, "preempt", "preempt line", second),
    ):
        line.mark(f"{key}-crossed", f"the {words} is crossed, as scraped", seen.when_crossed(key, since))
        line.mark(f"{key}-pending", f"`{name}` is pending", seen.when_alert(name, "pending", since))
        line.mark(f"{key}-firing", f"`{name}` is firing", seen.when_alert(name, "firing", since))
        line.mark(f"{key}-received", f"`{name}`: its message is received", _note(seen, name, True).at)
        line.mark(f"{key}-resolved", f"`{name}`: the message that it is over", _note(seen, name, False).at)
    line.mark("queue-event", "event `AboveQueueLine`", seen.when_event("AboveQueueLine", "AbovePreemptLine"))
    line.mark("preempt-event", "event `AbovePreemptLine`", seen.when_event("AbovePreemptLine"))
    line.mark("tightened", f"event `SoftLimitLowered`, `status.tightened`: not {SOFT_LIMIT}, but less",
              seen.when_event("SoftLimitLowered"))  # fmt: skip
    line.mark("tightened-engine", "the engine runs it, hot, as scraped", seen.when_config(begin, is_first=False))
    line.mark("left", "both lines are left, as scraped", max(seen.when_left(key, end) for key in ("queue", "preempt")))
    line.mark("gone-event", "event `MemoryPressureGone`", seen.when_event("MemoryPressureGone"))
    line.mark("restored", "event `SoftLimitRestored`: the limit of the spec", seen.when_event("SoftLimitRestored"))
    line.mark("restored-engine", "the engine runs it, hot, as scraped",
              seen.when_config(line.at["restored"] - 1, is_first=True))  # fmt: skip
