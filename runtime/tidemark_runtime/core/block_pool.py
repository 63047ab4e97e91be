"""Which pages of the slab are free, who holds which, and which keep KV that somebody may want again.

A page is in one of three states:

    free     holds nothing worth keeping
    held     by one sequence, or by several that share it; only its first holder ever wrote to it
    cached   held by nobody, but its tokens are known by a key: found again, or evicted when pages run out

Cached pages count as free for everyone who asks for pages. They are evicted in the order in which they were let go; a
sequence lets go of its last page first, so the tail of a conversation goes before its head. Held pages are never
evicted, and who holds a page holds all pages before it: the head of a sequence that is still going stays.

Two that started at once compute the same, each in pages of its own. These are copies of one block: it is found as long
as somebody holds a copy, and of the copies that nobody holds one is kept, and only where no other is held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_runtime import errors


class PoolCorrupted(errors.EngineError):
    """The pool's sums do not work out: a page was freed twice, or lost. A fault of ours."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What a full page keeps, whose tokens are known."""

    serial: int
    """Unique for as long as the process lives: what is evicted and computed again is another block."""
    pages: dict[int, None]
    """The copies, in the order in which they were published: one that nobody holds, or any number that are held."""
    parent: int
    """Serial of the block before it; 0 for the first of a sequence."""
    key: bytes
    tokens: bytes
    """What it holds the KV of: compared on every hit, because keys are only hashes."""

    @property
    def page(self) -> int:
        """The copy to share."""
        return next(iter(self.pages))


class BlockPool:
    """`num_pages` pages. Only the pool touches lists and counts."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise errors.CapacityError(f"the slab has {num_pages} pages, expected at least 1")
        self._num_pages = num_pages
        # A stack whose top is the page given back last: a small load stays in few pages, and so in little
        # resident memory, because the operating system only backs pages that were ever written.
        self._free = list(range(num_pages - 1, -1, -1))
        self._num_holders = [0] * num_pages
        self._blocks: dict[bytes, Block] = {}
        self._block_of_page: dict[int, Block] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()
        """Pages nobody holds, let go longest ago first."""
        self._num_blocks_ever = 0
        self.num_evictions = 0

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def num_free(self) -> int:
        """Pages that `allocate` can hand out: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_used(self) -> int:
        return self._num_pages - len(self._free) - len(self._cached)

    # ---- holding ---------------------------------------------------------------------------------------------

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """`count` pages for one holder, or None (and nothing changed) when fewer are free."""
        if count > self.num_free:
            return None
        if count == 0:
            return ()
        for _ in range(count - len(self._free)):
            self._evict()
        pages = tuple(reversed(self._free[-count:]))
        del self._free[-count:]
        for page in pages:
            self._num_holders[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more holder of pages that `find` has just returned: from now on they stay."""
        for page in pages:
            if not self._num_holders[page]:
                del self._cached[page]
            self._num_holders[page] += 1

    def free(self, pages: Iterable[int]) -> None:
        """Let go of pages, in the order of their tokens. Raises `PoolCorrupted` for one that is not held."""
        for page in reversed(tuple(pages)):
            if not (0 <= page < self._num_pages and self._num_holders[page]):
                raise PoolCorrupted(f"page {page} was given back but is not held")
            self._num_holders[page] -= 1
            if not self._num_holders[page]:
                block = self._block_of_page.get(page)
                if block is not None and len(block.pages) == 1:
                    self._cached[page] = None
                else:
                    self._forget(page)

    # ---- finding again ---------------------------------------------------------------------------------------

    def find(self, parent: int, key: bytes, tokens: bytes) -> Block | None:
        """The block with these tokens after the block `parent`; None when there is none, whatever the key says."""
        found = self._blocks.get(key)
        if found is None or found.parent != parent or found.tokens != tokens:
            return None
        return found

    def publish(self, page: int, parent: int, key: bytes, tokens: bytes) -> Block | None:
        """Let others find what the held `page` keeps: in a new block, or in the one of which it is a copy. None when
        the key is taken by other tokens, and what comes after this page cannot be found either."""
        if not self._num_holders[page] or page in self._block_of_page:
            raise PoolCorrupted(f"page {page} was published but is not held, or was published before")
        block = self.find(parent, key, tokens)
        if block is None:
            if key in self._blocks:
                return None
            self._num_blocks_ever += 1
            block = self._blocks[key] = Block(self._num_blocks_ever, {}, parent, key, tokens)
        elif block.page in self._cached:
            del self._cached[block.page]
            self._forget(block.page)
        block.pages[page] = None
        self._block_of_page[page] = block
        return block

    def num_cached_among(self, pages: Sequence[int]) -> int:
        """How many of these pages nobody holds: holding them takes so many away from `num_free`."""
        return sum(not self._num_holders[page] for page in pages)

    def num_held_once(self, pages: Iterable[int]) -> int:
        """How many of these pages become free when one holder lets go."""
        return sum(self._num_holders[page] == 1 for page in pages)

    def _evict(self) -> None:
        page, _ = self._cached.popitem(last=False)
        del self._blocks[self._block_of_page[page].key]
        self._forget(page)
        self.num_evictions += 1

    def _forget(self, page: int) -> None:
        """Nobody is to find `page` any more: it is free."""
        block = self._block_of_page.pop(page, None)
        if block is not None:
            del block.pages[page]
        self._free.append(page)

    # ---- checking --------------------------------------------------------------------------------------------

    def check_integrity(self, held: Iterable[int] | None = None) -> None:
        """Raise `PoolCorrupted` unless free + cached + held = all, without repetition.

        `held`: the pages that sequences believe they hold, one mention a holder; compared where given.
        """
        free, cached = set(self._free), set(self._cached)
        if len(free) != len(self._free):
            raise PoolCorrupted("a page is in the free list twice")
        marked = {page for page in range(self._num_pages) if self._num_holders[page]}
        if free & marked or cached & (marked | free) or len(free) + len(cached) + len(marked) != self._num_pages:
            raise PoolCorrupted(
                f"{len(free)} free + {len(cached)} cached + {len(marked)} held pages are not the {self._num_pages} of "
                "the slab"
            )
        if free & self._block_of_page.keys() or not cached <= self._block_of_page.keys():
            raise PoolCorrupted("a free page has a key, or a cached one has none")
        if {page: block for block in self._blocks.values() for page in block.pages} != self._block_of_page:
            raise PoolCorrupted("keys and pages do not belong together")
        if any(block.pages.keys() & cached and len(block.pages) > 1 for block in self._blocks.values()):
            raise PoolCorrupted("a page is cached of which there is another copy")
        if held is not None:
            believed = [0] * self._num_pages
            for page in held:
                believed[page] += 1
            if believed != self._num_holders:
                wrong = [page for page in range(self._num_pages) if believed[page] != self._num_holders[page]]
                raise PoolCorrupted(f"pages {wrong[:8]} have other holders than the sequences believe")
