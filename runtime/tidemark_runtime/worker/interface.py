"""What the engine asks of whatever computes: `torch` (CPU) now, `triton` and `simulated` behind the same door."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import capacity, page_layout


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
    """Measured, by part: `weights`, `kv`, `workspace`, `overhead`; and `swap` where there is swap space."""
    num_host_pages: int = 0
    """Pages in the host's swap space."""
    page_copy_seconds: float = 0.0
    """Measured while loading: one page between slab and swap space, one way. 0 where there is no swap space."""
    memory_limit_bytes: int = 0
    """What the whole pod may use; 0 where nobody knows."""
    step_token_bytes: int = 0
    """Workspace that each token of a step's budget takes; part of `memory_bytes["workspace"]`."""
    shape: capacity.ModelShape | None = None
    """Of the loaded model, for plans made before the next start."""
    kernel_paths: dict[str, str] = field(default_factory=dict)
    """op -> path that runs, for example {"linear": "rows<=8: grouped4, else bfloat16", "attention": "cpu-c"}."""
    notes: dict[str, str] = field(default_factory=dict)
    """Whatever else a person should know, for example `threads`."""


class Worker(Protocol):
    """Executes plans strictly in order, on one thread. Not thread-safe."""

    @property
    def facts(self) -> WorkerFacts: ...

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Compute one step. Blocking; releases the interpreter lock while it computes."""
        ...

    def close(self) -> None:
        """Give memory back; the worker is not used afterwards."""
        ...
