"""Who holds which pages and which slot: of the slab, of the swap space, and what the prefix cache finds again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark_runtime.core import block_pool, prefix_cache, sequence, step_plan


@dataclass(frozen=True, slots=True)
class Need:
    """What a waiting sequence must be given for its turn."""

    num_pages: int
    """Pages it holds afterwards."""
    hits: tuple[block_pool.Block, ...] = ()
    """Of these, found in the prefix cache: the first ones."""
    num_taken: int = field(default=0)
    """Pages that are free for others before and not afterwards."""


class Memory:
    """Slots, slab and swap space. A sequence's `slot`, `pages` and `host_pages` are written here only."""

    def __init__(
        self, *, num_slots: int, num_pages: int, block_size: int, num_host_pages: int, prefix_caching: bool
    ) -> None:
        self.block_size = block_size
        self._num_slots = num_slots
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self.pool = block_pool.BlockPool(num_pages)
        self.host = block_pool.BlockPool(num_host_pages) if num_host_pages else None
        self.cache = prefix_cache.PrefixCache(self.pool, block_size) if prefix_caching else None
        self._lane_pages = dict.fromkeys(sequence.Lane, 0)
        self._num_host_ever = 0
        """Pages of the swap space, from 0 on, that were in use at some time: the pool gives those out again first."""

    @property
    def num_free_slots(self) -> int:
        return len(self._free_slots)

    @property
    def num_host_used(self) -> int:
        return self.host.num_used if self.host is not None else 0

    def num_pages_of(self, lane: sequence.Lane) -> int:
        """Pages that sequences of a lane hold; a shared one counts for each."""
        return self._lane_pages[lane]

    @property
    def num_pages_held(self) -> int:
        """By all sequences together; a shared page counts for each."""
        return sum(self._lane_pages.values())

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # ---- the slab --------------------------------------------------------------------------------------------

    def need(self, entry: sequence.Sequence, num_tokens: int, *, search: bool) -> Need:
        """For `num_tokens` of `entry`. `search`: look into the prefix cache, which costs a look-up a page."""
        num_pages = self.pages_for(num_tokens)
        if not search or self.cache is None or entry.host_pages:
            return Need(num_pages, (), num_pages)
        hits = tuple(self.cache.match(entry))
        idle = self.pool.num_cached_among([block.page for block in hits])
        return Need(num_pages, hits, num_pages - len(hits) + idle)

    def take(self, entry: sequence.Sequence, need: Need) -> None:
        """Give `entry` a slot and its pages; the caller knows that there are enough."""
        hits = [block.page for block in need.hits]
        self.pool.share(hits)
        pages = self.pool.allocate(need.num_pages - len(hits))
        if pages is None:
            raise block_pool.PoolCorrupted(f"sequence {entry.id} was promised {need.num_pages} pages")
        entry.slot = self._free_slots.pop()
        entry.pages = [*hits, *pages]
        entry.num_published = len(hits)
        entry.last_block = need.hits[-1].serial if hits else 0
        self._lane_pages[entry.lane] += len(entry.pages)
        if not entry.host_pages:
            entry.num_computed = len(hits) * self.block_size
            if self.cache is not None:
                self.cache.count(entry, entry.num_computed)

    def grow(self, entry: sequence.Sequence) -> tuple[int, ...] | None:
        """One page more; None when none is free."""
        pages = self.pool.allocate(1)
        if pages is not None:
            entry.pages.extend(pages)
            self._lane_pages[entry.lane] += 1
        return pages

    def release(self, entry: sequence.Sequence) -> None:
        """Take slot and pages of the slab from `entry`.

        They may be given to others at once, although a step in flight may still write to them: steps execute in
        order, so that write comes before any of the next holder's.
        """
        self._lane_pages[entry.lane] -= len(entry.pages)
        self.pool.free(entry.pages)
        entry.pages = []
        self._free_slots.append(entry.slot)
        entry.slot = -1

    def num_freed_by(self, entry: sequence.Sequence) -> int:
        """Pages that become free when `entry` lets go of its own."""
        return self.pool.num_held_once(entry.pages)

    def publish(self, entry: sequence.Sequence, num_tokens: int) -> None:
        """The KV of the first `num_tokens` of `entry` is written: others may use its full pages."""
        if self.cache is not None:
            self.cache.publish(entry, num_tokens)

    # ---- the swap space --------------------------------------------------------------------------------------

    def num_first_copies(self, count: int) -> int:
        """Of `count` pages swapped out now, how many go where the swap space was never used before."""
        return max(0, count - (self._num_host_ever - self.num_host_used))

    def swap_out(self, entry: sequence.Sequence) -> tuple[step_plan.Copy, ...]:
        """Give what `entry` has computed a place in the swap space, and take slot and pages of the slab from it. The
        caller knows that there is room."""
        count = self.pages_for(entry.num_computed)
        places = self.host.allocate(count) if self.host is not None else None
        if places is None:
            raise block_pool.PoolCorrupted(f"sequence {entry.id} was promised {count} pages of swap space")
        self._num_host_ever = max(self._num_host_ever, max(places, default=-1) + 1)
        copies = tuple(map(step_plan.Copy, entry.pages, places))
        entry.host_pages = list(places)
        entry.num_copied = 0
        self.release(entry)
        return copies

    def swap_in(self, entry: sequence.Sequence, limit: int) -> tuple[step_plan.Copy, ...]:
        """The next `limit` copies back; with the last one the place in the swap space is free again, since whatever is
        copied there comes in a later step."""
        first, last = entry.num_copied, min(entry.num_copied + limit, len(entry.host_pages))
        copies = tuple(map(step_plan.Copy, entry.pages[first:last], entry.host_pages[first:last]))
        entry.num_copied = last
        if last == len(entry.host_pages):
            self.forget_host(entry)
        return copies

    def forget_host(self, entry: sequence.Sequence) -> None:
        """What `entry` has in the swap space is wanted no more."""
        if entry.host_pages and self.host is not None:
            self.host.free(entry.host_pages)
        entry.host_pages = []
        entry.num_copied = 0

    # ---- checking --------------------------------------------------------------------------------------------

    def check_integrity(self, holders: Iterable[sequence.Sequence], parked: Iterable[sequence.Sequence]) -> None:
        """Raise `PoolCorrupted` unless all sums work out. `holders` hold a slot; `holders` and `parked` are all that
        may have something in the swap space."""
        holders, parked = list(holders), list(parked)
        self.pool.check_integrity(page for entry in holders for page in entry.pages)
        if self.host is not None:
            self.host.check_integrity(page for entry in (*holders, *parked) for page in entry.host_pages)
        slots = sorted([*self._free_slots, *(entry.slot for entry in holders)])
        if slots != list(range(self._num_slots)):
            raise block_pool.PoolCorrupted(f"free and used slots are {slots}")
        for lane, num_pages in self._lane_pages.items():
            held = sum(len(entry.pages) for entry in holders if entry.lane is lane)
            if held != num_pages:
                raise block_pool.PoolCorrupted(f"lane {lane.name} holds {held} pages, counted were {num_pages}")
