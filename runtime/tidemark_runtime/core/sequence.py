"""One sequence: what the engine runs for one choice of one request.

It counts tokens *known* (prompt and what came back from the worker), *sampled* (output tokens that steps were planned
for: the newest may still be with the worker) and *computed* (their KV is in pages, or will be once the steps in flight
are done). There are no phases: a step closes a part of the gap between computed and prompt + sampled.

A sequence that has one token to compute in every step is *decoding*. Its counts then follow from the number of the
step alone, and are written down when that ends (`decoding.DecodeSet`); so a step costs nothing for each of them.
"""

from __future__ import annotations

from enum import Enum, auto

from tidemark_runtime.core import sampling


class State(Enum):
    WAITING = auto()
    """Holds no pages of the slab; in the waiting queue, for its first turn or for a later one."""
    RESTORING = auto()
    """Holds a slot and pages, which are being copied back from the swap space."""
    RUNNING = auto()
    """Holds a slot and pages, and takes part in steps."""
    FINISHED = auto()
    """Holds nothing; results that still come back for it are dropped."""


class Lane(Enum):
    EXPRESS = auto()
    SLOW = auto()


class Sequence:
    """Mutable state, owned by the scheduler; nobody else writes to it."""

    __slots__ = (
        "arrival_seconds",
        "block_keys",
        "decoding_since",
        "first_step",
        "host_pages",
        "id",
        "is_retry",
        "lane",
        "last_block",
        "last_step",
        "next_page_step",
        "num_cached_tokens",
        "num_computed",
        "num_copied",
        "num_max_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_published",
        "num_sampled",
        "order",
        "pages",
        "params",
        "priority",
        "search_step",
        "slot",
        "started",
        "state",
        "stop_ids",
        "tenant",
        "token_ids",
        "turn_of",
    )

    def __init__(
        self,
        sequence_id: str,
        token_ids: list[int],
        params: sampling.SamplingParams,
        *,
        order: int,
        arrival_seconds: float,
        priority: int = 0,
        tenant: str = "",
        is_retry: bool = False,
    ) -> None:
        self.id = sequence_id
        self.token_ids = token_ids
        self.num_prompt_tokens = len(token_ids)
        self.params = params
        self.num_max_tokens = self.num_prompt_tokens + params.max_tokens
        """The longest it can become."""
        self.stop_ids = frozenset(() if params.ignore_stop_tokens else params.stop_token_ids)
        self.order = order
        """Position in the order of arrival; smaller came earlier."""
        self.arrival_seconds = arrival_seconds
        self.priority = priority
        """Strict classes: a larger one goes first."""
        self.tenant = tenant
        """Whose request it is: pages of the prefix cache are shared within a tenant only."""
        self.is_retry = is_retry
        self.turn_of = ""
        """The tenant whose turn it takes while it waits; empty where tenants do not take turns."""
        self.lane = Lane.EXPRESS
        self.state = State.WAITING
        self.started = False
        """Has had a first turn."""
        self.first_step = 0
        """The step of its newest turn: what older steps bring is not in the pages it holds."""
        self.search_step = 0
        """The step from which on the prefix cache is searched for it again."""
        self.slot = -1
        self.pages: list[int] = []
        """Of the slab: `pages[i]` keeps tokens [i * block_size, (i + 1) * block_size)."""
        self.host_pages: list[int] = []
        """Of the swap space; the same tokens, for the time in which they are not in `pages`."""
        self.num_copied = 0
        """How many of `host_pages` have been copied back."""
        self.num_computed = 0
        self.num_sampled = 0
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        """Prompt tokens that were found in the prefix cache at its first turn."""
        self.block_keys: list[bytes] = []
        """Names of its first full pages in the prefix cache, as far as they were needed."""
        self.last_block = 0
        """Serial of the last page that others may share, or that it shares."""
        self.num_published = 0
        """How many of its pages others may share."""
        self.decoding_since = 0
        """The first step of an unbroken run of decodes; 0 when not decoding."""
        self.next_page_step = 0
        """While decoding: the step that needs another page."""
        self.last_step = 0
        """While decoding: the step that samples the last token allowed."""

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Tokens that the worker has and we do not; not to be asked while decoding."""
        return self.num_prompt_tokens + self.num_sampled - len(self.token_ids)

    @property
    def num_uncomputed(self) -> int:
        """Tokens a step could compute now; 0 once all output that is allowed has been sampled. Not while decoding."""
        if self.num_sampled >= self.params.max_tokens:
            return 0
        return self.num_prompt_tokens + self.num_sampled - self.num_computed
