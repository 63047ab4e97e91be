"""Finds the beginning of a sequence in pages that others left, or still hold.

A full page is known by a key: the SHA-256 of the key before it and its own tokens, so a key stands for all tokens from
the first on. The chain begins with a salt made at the start of the process and the tenant's name: nobody can guess a
key, and what one tenant sends is never found by another. On a hit the tokens are compared, and that the page before
is the one that was found before: keys are hashes, and a wrong page would be another prompt's memory.

The KV dtype and the model need no place in the key: the slab has one of each, and lives no longer than its process.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Callable

from tidemark_runtime.core import block_pool, sequence

Hash = Callable[[bytes], bytes]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class PrefixCache:
    """What the scheduler asks of the cache; pages and their holders are the pool's."""

    def __init__(self, pool: block_pool.BlockPool, block_size: int, *, hash_: Hash = sha256) -> None:
        self._pool = pool
        self._block_size = block_size
        self._hash = hash_
        self._salt = secrets.token_bytes(32)
        self.num_hit_tokens = 0
        self.num_missed_tokens = 0

    def match(self, entry: sequence.Sequence) -> list[block_pool.Block]:
        """The longest beginning of `entry` that is in pages, in order; at least its last known token is left out, since
        something must be computed for a next one. Nothing is held by this: `BlockPool.share` does that."""
        found: list[block_pool.Block] = []
        parent = 0
        for index in range((entry.num_known - 1) // self._block_size):
            block = self._pool.find(parent, self._key(entry, index), self._tokens(entry, index))
            if block is None:
                break
            found.append(block)
            parent = block.serial
        return found

    def publish(self, entry: sequence.Sequence, num_tokens: int) -> None:
        """Let others find the full pages among the first `num_tokens` of `entry`, whose KV is written."""
        for index in range(entry.num_published, num_tokens // self._block_size):
            key, tokens = self._key(entry, index), self._tokens(entry, index)
            block = self._pool.publish(entry.pages[index], entry.last_block, key, tokens)
            if block is None:
                entry.num_published = _NEVER  # the key means other tokens: what comes after it cannot be found
                return
            entry.last_block = block.serial
            entry.num_published = index + 1

    def count(self, entry: sequence.Sequence, num_hit: int) -> None:
        """`entry` gets a turn, with so many of its tokens found."""
        self.num_hit_tokens += num_hit
        self.num_missed_tokens += entry.num_known - num_hit

    def _key(self, entry: sequence.Sequence, index: int) -> bytes:
        keys = entry.block_keys
        while len(keys) <= index:
            before = keys[-1] if keys else self._salt + entry.tenant.encode()
            keys.append(self._hash(before + self._tokens(entry, len(keys))))
        return keys[index]

    def _tokens(self, entry: sequence.Sequence, index: int) -> bytes:
        start = index * self._block_size
        return array("I", entry.token_ids[start : start + self._block_size]).tobytes()


_NEVER = 1 << 60
"""More pages than there are."""
