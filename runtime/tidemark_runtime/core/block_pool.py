"""Which pages of the slab are free, and who may write to which.

The pool hands out page numbers and takes them back; only it touches the free list. A page has one holder from
`allocate` to `free`: the sequence whose tokens `[i * block_size, (i + 1) * block_size)` it keeps, where i is the
page's index in that sequence's page list.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_runtime import errors


class PoolCorrupted(errors.EngineError):
    """The pool's sums do not work out: a page was freed twice, or lost. A fault of ours."""


class BlockPool:
    """`num_pages` pages, each free or held."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise errors.CapacityError(f"the slab has {num_pages} pages, expected at least 1")
        self._num_pages = num_pages
        # A stack whose top is the page given back last: a small load stays in few pages, and so in little
        # resident memory, because the operating system only backs pages that were ever written.
        self._free = list(range(num_pages - 1, -1, -1))
        self._held = bytearray(num_pages)

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self._num_pages - len(self._free)

    def allocate(self, count: int) -> tuple[int, ...] | None:
        """`count` pages, or None (and nothing changed) when fewer are free."""
        if count > len(self._free):
            return None
        if count == 0:
            return ()
        pages = tuple(reversed(self._free[-count:]))
        del self._free[-count:]
        for page in pages:
            self._held[page] = 1
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Take pages back. Raises `PoolCorrupted` for one that is not held."""
        for page in reversed(tuple(pages)):
            if not (0 <= page < self._num_pages and self._held[page]):
                raise PoolCorrupted(f"page {page} was given back but is not held")
            self._held[page] = 0
            self._free.append(page)

    def check_integrity(self, held: Iterable[int] | None = None) -> None:
        """Raise `PoolCorrupted` unless free + held = all, without repetition.

        `held`: the pages the sequences believe they hold; compared where given.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise PoolCorrupted("a page is in the free list twice")
        marked = {page for page in range(self._num_pages) if self._held[page]}
        if free & marked or len(free) + len(marked) != self._num_pages:
            raise PoolCorrupted(
                f"{len(free)} free + {len(marked)} held pages are not the {self._num_pages} of the slab"
            )
        if held is not None:
            believed = list(held)
            if len(set(believed)) != len(believed) or set(believed) != marked:
                raise PoolCorrupted(f"sequences hold {len(believed)} pages, the pool has {len(marked)} marked as held")
