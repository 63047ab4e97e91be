"""How many pages the slab gets: the device's memory less everything else, and never more than can be used."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidemark_runtime import errors
from tidemark_runtime.planning import page_layout

MIB_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the settings say about the slab (section `kvCache`); at most one of `num_pages` and `memory_bytes`."""

    memory_utilization: float
    """Share of the device's memory for weights, slab, workspace and overhead together."""
    num_pages: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What else takes memory, and the most the requests can use."""

    limit_bytes: int
    """Memory this process may use: cgroup limit or machine."""
    weights_bytes: int
    workspace_bytes: int
    """Tables that are kept between steps."""
    overhead_bytes: int
    """Framework, interpreter, HTTP process."""
    max_num_seqs: int
    max_context_tokens: int
    activations_bytes: int = 0
    """Peak of the largest step."""
    graphs_bytes: int = 0
    """Recorded steps; none on a processor."""
    swap_bytes: int = 0
    """Swap space, where it shares the memory of the slab, as on a processor."""
    speculation_bytes: int = 0
    """Logits of guesses, and the draft model with its part of the swap space."""
    speculation_page_bytes: int = 0
    """The draft model's part of each page."""

    @property
    def others_bytes(self) -> int:
        """All but the slab."""
        step = self.activations_bytes + self.graphs_bytes + self.workspace_bytes
        return self.weights_bytes + step + self.overhead_bytes + self.swap_bytes + self.speculation_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """The decision with every term of the sum, for `/status`."""

    num_pages: int
    page_bytes: int
    decided_by: str
    """`numPages`, `memory`, `memoryUtilization` or `maxNumSeqs` (all that can ever be used)."""
    limit_bytes: int
    usable_bytes: int
    """Share of the limit that `memory_utilization` allows."""
    weights_bytes: int
    workspace_bytes: int
    overhead_bytes: int
    kv_bytes: int
    useful_pages: int
    """Pages that `max_num_seqs` requests of full context take; more would never be used."""
    activations_bytes: int = 0
    graphs_bytes: int = 0
    swap_bytes: int = 0
    speculation_bytes: int = 0
    """Logits of guesses, and the draft model with its own slab."""

    @property
    def others_bytes(self) -> int:
        """All but the slab."""
        return sum(self.parts_bytes.values()) - self.kv_bytes

    @property
    def parts_bytes(self) -> dict[str, int]:
        """By the names that metrics and `/status` use."""
        return {
            "weights": self.weights_bytes,
            "kv": self.kv_bytes,
            **({"activations": self.activations_bytes} if self.activations_bytes else {}),
            **({"graphs": self.graphs_bytes} if self.graphs_bytes else {}),
            "workspace": self.workspace_bytes,
            "overhead": self.overhead_bytes,
            **({"swap": self.swap_bytes} if self.swap_bytes else {}),
            **({"speculation": self.speculation_bytes} if self.speculation_bytes else {}),
        }


def num_swap_pages(layout: page_layout.PageLayout, swap_bytes: int) -> int:
    """Whole pages in a swap space of `swap_bytes`. Raises ConfigError where it holds none although it is not 0."""
    if 0 < swap_bytes < layout.page_bytes:
        problem = errors.Problem(
            "kvCache.swapSpace",
            swap_bytes,
            f"0 or at least one page of {layout.block_size} tokens, {layout.page_bytes} bytes",
            "Raise it, or set it to 0: pages of preempted requests are then computed again",
        )
        raise errors.ConfigError([problem])
    return swap_bytes // layout.page_bytes


def decide(layout: page_layout.PageLayout, wishes: Wishes, demand: Demand) -> PoolSize:
    """The size of the slab.

    Raises `errors.CapacityError` with the sum when not one page fits, or when what the settings ask for exceeds the
    memory there is (a slab that is touched page by page would otherwise die later, under load).
    """
    useful_pages = demand.max_num_seqs * layout.pages_for(demand.max_context_tokens)
    usable_bytes = int(demand.limit_bytes * wishes.memory_utilization)
    others_bytes, page_bytes = demand.others_bytes, layout.page_bytes + demand.speculation_page_bytes
    if wishes.num_pages is not None:
        asked_pages, asked_by, ceiling_bytes = wishes.num_pages, "numPages", demand.limit_bytes
    elif wishes.memory_bytes is not None:
        asked_pages, asked_by = wishes.memory_bytes // page_bytes, "memory"
        ceiling_bytes = demand.limit_bytes
    else:
        asked_pages, asked_by = max(0, usable_bytes - others_bytes) // page_bytes, "memoryUtilization"
        ceiling_bytes = usable_bytes
    num_pages = min(asked_pages, useful_pages)
    size = PoolSize(
        num_pages=num_pages,
        page_bytes=layout.page_bytes,
        decided_by=asked_by if asked_pages <= useful_pages else "maxNumSeqs",
        limit_bytes=demand.limit_bytes,
        usable_bytes=usable_bytes,
        weights_bytes=demand.weights_bytes,
        workspace_bytes=demand.workspace_bytes,
        overhead_bytes=demand.overhead_bytes,
        kv_bytes=num_pages * layout.page_bytes,
        useful_pages=useful_pages,
        activations_bytes=demand.activations_bytes,
        graphs_bytes=demand.graphs_bytes,
        swap_bytes=demand.swap_bytes,
        speculation_bytes=demand.speculation_bytes + num_pages * demand.speculation_page_bytes,
    )
    if num_pages < 1 or others_bytes + num_pages * page_bytes > ceiling_bytes:
        raise errors.CapacityError(_does_not_fit(size, demand, layout, wishes, ceiling_bytes))
    return size


def _does_not_fit(
    size: PoolSize, demand: Demand, layout: page_layout.PageLayout, wishes: Wishes, ceiling_bytes: int
) -> str:
    """The sum, term by term, and what would make it fit."""
    page_bytes = layout.page_bytes + demand.speculation_page_bytes
    if wishes.memory_bytes is not None and wishes.num_pages is None and wishes.memory_bytes < page_bytes:
        return (
            f"kvCache.memory: got {wishes.memory_bytes} bytes, but one page of {layout.block_size} tokens takes "
            f"{page_bytes} bytes. Set kvCache.memory to at least {page_bytes}, or leave it out"
        )
    pages = max(size.num_pages, 1)
    needed_bytes = demand.others_bytes + pages * page_bytes
    budget = f"{_mib(ceiling_bytes)} usable"
    if ceiling_bytes != size.limit_bytes:
        budget += f" ({_mib(size.limit_bytes)} x memoryUtilization {wishes.memory_utilization:g})"
    terms = [
        f"weights {_mib(size.weights_bytes)}",
        *([f"activations {_mib(size.activations_bytes)}"] if size.activations_bytes else []),
        *([f"graphs {_mib(size.graphs_bytes)}"] if size.graphs_bytes else []),
        f"workspace {_mib(size.workspace_bytes)}",
        f"overhead {_mib(size.overhead_bytes)}",
        *([f"swap space {_mib(size.swap_bytes)}"] if size.swap_bytes else []),
        *([f"speculation {_mib(demand.speculation_bytes)}"] if demand.speculation_bytes else []),
        f"KV {_mib(pages * page_bytes)} ({pages} pages of {_mib(page_bytes)})",
    ]
    return (
        f"the model does not fit: {' + '.join(terms)} = {_mib(needed_bytes)}, but {budget}; "
        f"{_mib(needed_bytes - ceiling_bytes)} too much. {_remedy(size, demand, page_bytes, wishes, ceiling_bytes)}"
    )


def _remedy(size: PoolSize, demand: Demand, page_bytes: int, wishes: Wishes, ceiling_bytes: int) -> str:
    affordable_pages = (ceiling_bytes - demand.others_bytes) // page_bytes
    or_swap = ", lower kvCache.swapSpace" if size.swap_bytes else ""
    if affordable_pages >= 1 and wishes.num_pages is not None:
        return f"Lower kvCache.numPages to at most {affordable_pages}{or_swap}, or give the service more memory"
    if affordable_pages >= 1:
        affordable_bytes = affordable_pages * page_bytes
        return f"Lower kvCache.memory to at most {affordable_bytes} bytes{or_swap}, or give more memory"
    needed_bytes = demand.others_bytes + max(size.num_pages, 1) * page_bytes
    swap_pages = (ceiling_bytes - needed_bytes + size.swap_bytes) // page_bytes
    if size.swap_bytes and swap_pages >= 0:
        lower = f"Lower kvCache.swapSpace to at most {swap_pages * page_bytes} bytes"
        return f"{lower if swap_pages else 'Set kvCache.swapSpace to 0'}, or give the service more memory"
    if needed_bytes <= size.limit_bytes:
        return f"Raise kvCache.memoryUtilization to at least {_ratio_up(needed_bytes / size.limit_bytes)}"
    if ceiling_bytes != size.limit_bytes:  # only a share of what is given may be used
        needed_bytes = math.ceil(needed_bytes / wishes.memory_utilization)
    enough = f"{math.ceil(needed_bytes / MIB_BYTES):,} MiB"
    return f"Give the service at least {enough}, or choose a smaller model or quantization"


def _ratio_up(ratio: float) -> str:
    """Two decimals, never rounded down, at most 1."""
    return f"{min(1.0, -(-ratio * 100 // 1) / 100):.2f}"


def _mib(num_bytes: int) -> str:
    mib = num_bytes / MIB_BYTES
    return f"{mib:,.1f} MiB" if mib < 100 else f"{mib:,.0f} MiB"
