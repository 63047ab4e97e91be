"""How many requests run at once in a slab, and the reverse: what memory so many need."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_runtime import errors
from tidemark_runtime.planning import capacity, page_layout

_LENGTH = re.compile(r"(\d+)\+(\d+)", re.ASCII)
_MOST_TOKENS = 1 << 30


@dataclass(frozen=True, slots=True)
class Length:
    """Of one request, in tokens."""

    prompt_tokens: int
    output_tokens: int

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def __str__(self) -> str:
        return f"{self.prompt_tokens}+{self.output_tokens}"


def parse_length(text: str, key: str) -> Length:
    """`2048+512`: prompt and output. Raises `ConfigError` that names `key`."""
    match = _LENGTH.fullmatch(text)
    found = Length(int(match[1]), int(match[2])) if match and len(text) < 32 else Length(0, 0)
    if not (found.prompt_tokens and found.output_tokens and found.num_tokens <= _MOST_TOKENS):
        expected = (
            "tokens of the prompt and of the output, both at least 1, such as 2048+512, "
            f"together at most {_MOST_TOKENS:,}"
        )
        raise errors.ConfigError([errors.Problem(key, text, expected)])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A slab, and the settings that bound how many requests share it."""

    num_pages: int
    block_size: int
    max_num_seqs: int
    max_context_tokens: int
    queue_watermark: float
    """Share of the pages in use from which on new requests wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Requests of one length (or of a mix, by its mean), all at their full length at the same moment."""

    num_tokens: float
    """A request; the mean of a mix."""
    pages: float
    """A request; the mean of a mix."""
    by_memory: int
    """As many as the slab holds."""
    by_places: int
    """`scheduler.maxNumSeqs`."""
    before_line: int
    """As many as leave the pages in use under the queue line; beyond it those that run go on and new ones wait."""
    too_long: bool
    """Longer than `model.maxContextTokens`: refused, each one."""

    @property
    def num_requests(self) -> int:
        return 0 if self.too_long else min(self.by_memory, self.by_places)

    @property
    def bound_by(self) -> str:
        """The setting or thing that allows no more: `memory`, `maxNumSeqs` or `maxContextTokens`."""
        if self.too_long:
            return "maxContextTokens"
        return "memory" if self.by_memory < self.by_places else "maxNumSeqs"


def of_length(room: Room, length: Length) -> Concurrency:
    """All requests as long as `length`."""
    return of_mix(room, [length])


def of_mix(room: Room, lengths: Sequence[Length]) -> Concurrency:
    """As many requests of each of `lengths` as of each other."""
    pages = sum(-(-length.num_tokens // room.block_size) for length in lengths) / len(lengths)
    in_line = min(room.queue_watermark * room.num_pages, room.num_pages)
    return Concurrency(
        num_tokens=sum(length.num_tokens for length in lengths) / len(lengths),
        pages=pages,
        by_memory=math.floor(room.num_pages / pages),
        by_places=room.max_num_seqs,
        before_line=min(math.floor(in_line / pages), room.max_num_seqs),
        too_long=any(length.num_tokens > room.max_context_tokens for length in lengths),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What so many requests of one length take, with one KV dtype. Of one device."""

    kv_dtype: str
    kv_bytes: int
    limit_bytes: int
    """The smallest device (on a processor: memory of the pod) on which this fits, `memoryUtilization` counted in."""
    fits: bool
    """On the device that the plan is for."""


def needs(
    shape: capacity.ModelShape, wanted: capacity.Wanted, users: int, length: Length, dtypes: Sequence[str]
) -> tuple[Need, ...]:
    """For each of `dtypes`, in their order. `wanted.max_num_seqs` is raised to `users` where it is less.

    A precision map counts with each dtype that it makes a difference to. Raises `CapacityError` for a model that cannot
    be divided.
    """
    return tuple(_need(shape, _for_users(wanted, users, dtype), users, length) for dtype in dtypes)


def _for_users(wanted: capacity.Wanted, users: int, dtype: str) -> capacity.Wanted:
    return dataclasses.replace(
        wanted,
        kv_dtype=dtype,
        max_num_seqs=max(users, wanted.max_num_seqs),
        precision=wanted.precision if page_layout.KV_DTYPES[dtype].scaled else (),
    )


def _need(shape: capacity.ModelShape, wanted: capacity.Wanted, users: int, length: Length) -> Need:
    layout, demand = capacity.layout_and_demand(shape, wanted)
    kv_bytes = users * layout.pages_for(length.num_tokens) * layout.page_bytes
    limit_bytes = math.ceil((demand.others_bytes + kv_bytes) / wanted.memory_utilization)
    return Need(
        kv_dtype=wanted.kv_dtype, kv_bytes=kv_bytes, limit_bytes=limit_bytes, fits=limit_bytes <= wanted.limit_bytes
    )
