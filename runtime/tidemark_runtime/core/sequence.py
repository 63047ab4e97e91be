"""One sequence: what the engine runs for one choice of one request.

It counts tokens *known* (prompt and what came back from the worker), *pending* (sampled by a step whose result has
not come back yet: the worker has the value, we do not) and *computed* (their KV is in pages, or will be once the
steps in flight are done). There are no phases: a step closes a part of the gap between computed and known + pending.
"""

from __future__ import annotations

from enum import Enum, auto

from tidemark_runtime.core import sampling


class State(Enum):
    WAITING = auto()
    """Holds no pages; in the waiting queue, for its first turn or for a later one."""
    RUNNING = auto()
    """Holds a slot and pages."""
    FINISHED = auto()
    """Holds nothing; results that still come back for it are dropped."""


class Sequence:
    """Mutable state, owned by the scheduler; nobody else writes to it."""

    __slots__ = (
        "arrival_seconds",
        "deadline_at_seconds",
        "id",
        "num_computed",
        "num_pending",
        "num_preemptions",
        "num_prompt_tokens",
        "order",
        "pages",
        "params",
        "slot",
        "started",
        "state",
        "token_ids",
    )

    def __init__(
        self,
        sequence_id: str,
        token_ids: list[int],
        params: sampling.SamplingParams,
        *,
        order: int,
        arrival_seconds: float,
        deadline_at_seconds: float | None = None,
    ) -> None:
        self.id = sequence_id
        self.token_ids = token_ids
        self.num_prompt_tokens = len(token_ids)
        self.params = params
        self.order = order
        """Position in the order of arrival; smaller came earlier."""
        self.arrival_seconds = arrival_seconds
        self.deadline_at_seconds = deadline_at_seconds
        self.state = State.WAITING
        self.started = False
        """Has had a first turn."""
        self.slot = -1
        self.pages: list[int] = []
        self.num_computed = 0
        self.num_pending = 0
        self.num_preemptions = 0

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        """Output tokens, with the one that is still pending."""
        return len(self.token_ids) - self.num_prompt_tokens + self.num_pending

    @property
    def num_max_tokens(self) -> int:
        """The longest it can become."""
        return self.num_prompt_tokens + self.params.max_tokens

    @property
    def num_uncomputed(self) -> int:
        """Tokens a step could compute now; 0 once all output that is allowed has been sampled."""
        if self.num_generated >= self.params.max_tokens:
            return 0
        return len(self.token_ids) + self.num_pending - self.num_computed
