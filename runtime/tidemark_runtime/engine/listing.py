"""The sequences of an engine for a person who looks: those that hold most, and never what is in them.

Made only when asked. It costs a look at every sequence, of which the largest few hundred are described.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tidemark_runtime.core import sequence
from tidemark_runtime.engine import messages

_STATES = {
    sequence.State.RUNNING: messages.SequenceState.RUNNING,
    sequence.State.RESTORING: messages.SequenceState.RESTORING,
}


def largest(entries: Iterable[sequence.Sequence], most: int, now: float) -> list[messages.SequenceFacts]:
    """At most `most`: those with most pages first, in the slab or swapped; of those with as many, the oldest."""
    chosen = heapq.nsmallest(most, entries, key=lambda entry: (-num_pages(entry), entry.order))
    return [_facts(entry, now) for entry in chosen]


def num_pages(entry: sequence.Sequence) -> int:
    """Pages of the slab and of the swap space. While they are copied back both are held."""
    return len(entry.pages) + len(entry.host_pages)


def _facts(entry: sequence.Sequence, now: float) -> messages.SequenceFacts:
    return messages.SequenceFacts(
        id=entry.id,
        state=_STATES.get(entry.state) or _state_of_waiting(entry),
        lane=entry.lane.name.lower(),
        priority=entry.priority,
        prompt_tokens=entry.num_prompt_tokens,
        cached_tokens=entry.num_cached_tokens,
        # What has come back: right in every step, while other counts of who decodes are written down later.
        generated_tokens=entry.num_known - entry.num_prompt_tokens,
        most_tokens=entry.params.max_tokens,
        pages=len(entry.pages),
        swapped_pages=len(entry.host_pages),
        preemptions=entry.num_preemptions,
        age_seconds=now - entry.arrival_seconds,
    )


def _state_of_waiting(entry: sequence.Sequence) -> messages.SequenceState:
    if entry.host_pages:
        return messages.SequenceState.SWAPPED
    return messages.SequenceState.PREEMPTED if entry.started else messages.SequenceState.WAITING
