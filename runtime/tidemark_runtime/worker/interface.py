"""What the engine asks of whatever computes: `torch` (CPU) now, `triton` and `simulated` behind the same door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemark_runtime.contract import status
from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import capacity, page_layout


@dataclass(frozen=True, slots=True)
class PageBytes:
    """What a page takes: of all ranks together where they share a memory, else of the rank with the largest page."""

    total: int
    by_dtype: Mapping[str, int]
    """Of K and V. A dtype that the largest page lacks has what it takes on the rank with most of it; these are not in
    `total`."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker knows of itself once loaded; shown in `/status`."""

    kind: str
    """`torch`, `triton` or `simulated`."""
    device: str
    """For example `cpu`."""
    dtype: str
    """Of activations: `float32`, `bfloat16`, `float16`."""
    layout: page_layout.PageLayout
    num_pages: int
    """Pages in the slab; the block pool is made of these."""
    max_context_tokens: int
    """What the settings and the model allow; the slab may hold less."""
    memory_bytes: dict[str, int]
    """Measured, by part: `weights` (of the tensors held), `kv` and `swap` (as mapped: the system provides the memory
    when a page is first written), `activations` (peak of the largest step, where it was measured), `workspace` (tables
    kept between steps), `overhead` (resident after loading, less the weights, and a budget for the HTTP process)."""
    planned_bytes: dict[str, int] = field(default_factory=dict)
    """What `tidemark plan` says of the same files and settings, by the same parts; empty where nobody planned."""
    num_host_pages: int = 0
    """Pages in the host's swap space."""
    page_copy_seconds: float = 0.0
    """Measured while loading: one page between slab and swap space, one way. 0 where there is no swap space."""
    memory_limit_bytes: int = 0
    """What the whole pod may use; 0 where nobody knows."""
    step_token_bytes: int = 0
    """Activations that each token of a step's budget takes."""
    shape: capacity.ModelShape | None = None
    """Of the loaded model, for plans made before the next start."""
    kernel_paths: tuple[status.KernelPath, ...] = ()
    """Of every op that has run in a step; empty before the first one. Of several ranks: of all of them."""
    notes: dict[str, str] = field(default_factory=dict)
    """Whatever else a person should know, for example `threads`."""
    page_of_ranks: PageBytes | None = None
    """Where several ranks share the model, whose pages may differ: a precision map names heads. None: one rank."""

    @property
    def page(self) -> PageBytes:
        return self.page_of_ranks or PageBytes(self.layout.page_bytes, self.layout.page_bytes_by_dtype)


class Worker(Protocol):
    """Executes plans strictly in order, on one thread. Not thread-safe."""

    @property
    def facts(self) -> WorkerFacts: ...

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Compute one step. Blocking; releases the interpreter lock while it computes.

        Raises OutOfMemory where memory ran out: the step has come to nothing, the worker goes on.
        """
        ...

    def close(self) -> None:
        """Give memory back; the worker is not used afterwards."""
        ...
