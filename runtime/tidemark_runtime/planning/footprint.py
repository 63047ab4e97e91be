"""The whole plan of one pod: each part's bytes on one device, what is kept free, and whether it fits.

`tidemark plan` shows it before anything starts, the operator puts its sum into `CapacityFit`, and the engine compares
it with what it measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_runtime import errors
from tidemark_runtime.planning import capacity, page_layout, pool_size

TOLERANCES: Mapping[str, float] = {"weights": 0.03, "kv": 0.03, "activations": 0.10, "speculation": 0.10}
"""Part -> how far what is measured may lie from the plan, as a share of the plan, before an engine warns. The other
parts are bounds (workspace) or assumptions (graphs, overhead)."""
PARTS = ("weights", "kv", "activations", "graphs", "workspace", "overhead", "swap", "speculation")
"""In the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Of one device; on a processor of the pod."""

    shape: capacity.ModelShape
    """Of the whole model."""
    wanted: capacity.Wanted
    layout: page_layout.PageLayout
    """A page of one device."""
    parts_bytes: Mapping[str, int]
    """All of PARTS. `kv` is the slab; where nothing fits, one page."""
    num_pages: int
    """0 where it does not fit."""
    decided_by: str
    """What set the number of pages, as `pool_size.PoolSize`; empty where it does not fit."""
    refusal: str
    """The sum in words and what would make it fit; empty where it fits."""

    @property
    def fits(self) -> bool:
        return not self.refusal

    @property
    def total_bytes(self) -> int:
        return sum(self.parts_bytes.values())

    @property
    def usable_bytes(self) -> int:
        return int(self.wanted.limit_bytes * self.wanted.memory_utilization)

    @property
    def reserve_bytes(self) -> int:
        """What `memoryUtilization` leaves untouched."""
        return self.wanted.limit_bytes - self.usable_bytes

    @property
    def free_bytes(self) -> int:
        """Neither used nor reserved: more pages would never be used, or were not asked for. Negative: missing."""
        return self.usable_bytes - self.total_bytes

    @property
    def context_tokens(self) -> int:
        """The longest request that the settings and the model allow."""
        own = self.shape.max_context_tokens
        return min(self.wanted.max_context_tokens or own, own)


def of(shape: capacity.ModelShape, wanted: capacity.Wanted, given: page_layout.PageLayout | None = None) -> Footprint:
    """The plan, whether it fits or not; `given` as in `capacity.layout_and_demand`.

    Raises `CapacityError` only where there is no sum: a model that cannot be divided among so many devices, or a map
    that is of another model.
    """
    layout, demand = capacity.layout_and_demand(shape, wanted, given)
    num_pages, decided_by, refusal = 0, "", ""
    try:
        size = pool_size.decide(layout, capacity.wishes(wanted), demand)
        num_pages, decided_by = size.num_pages, size.decided_by
    except errors.CapacityError as error:
        refusal = str(error)
    parts = {
        "weights": demand.weights_bytes,
        "kv": max(1, num_pages) * layout.page_bytes,
        "activations": demand.activations_bytes,
        "graphs": demand.graphs_bytes,
        "workspace": demand.workspace_bytes,
        "overhead": demand.overhead_bytes,
        "swap": demand.swap_bytes,
        "speculation": demand.speculation_bytes + max(1, num_pages) * demand.speculation_page_bytes,
    }
    return Footprint(
        shape=shape,
        wanted=wanted,
        layout=layout,
        parts_bytes=parts,
        num_pages=num_pages,
        decided_by=decided_by,
        refusal=refusal,
    )


def misses(planned: Mapping[str, int], measured: Mapping[str, int]) -> dict[str, float]:
    """Parts whose measured bytes are further from the plan than TOLERANCES allows -> measured over planned."""
    return {
        part: measured[part] / planned[part]
        for part, tolerance in TOLERANCES.items()
        if planned.get(part) and part in measured and abs(measured[part] - planned[part]) > tolerance * planned[part]
    }
