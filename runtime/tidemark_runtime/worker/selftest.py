"""Before an engine is ready: every op of the model, on the path it runs on, against its reference.

What is told afterwards is what ran: ops count their calls by path (`Choice.count`), and what was counted in steps is
joined with what the self-test found.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels import dispatch, steps
from tidemark_kernels.cpu import build
from tidemark_kernels.selftests import every, outcomes, target
from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.worker import loading, selftest_host, selftest_layers

_LOGGER = logging.getLogger(__name__)

ALWAYS = ("paged_attention", "rms_norm", "rope_and_write", "silu_mul")
"""Ops of every model we run; which products there are depends on its weights."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What the self-test found; nothing in it has failed."""

    ops: tuple[outcomes.Outcome, ...]
    """Of `tidemark_kernels.ops`, and of what runs in numpy."""
    forms: tuple[selftest_layers.Form, ...]
    """Of the weights."""

    def paths(self, since: Mapping[dispatch.Call, int]) -> tuple[status.KernelPath, ...]:
        """What has run since `since`, a copy of the calls counted then; forms and numpy have one path each."""
        by_op = {(outcome.op, outcome.dtype): outcome for outcome in self.ops}
        found = [
            _path(each.op, each.planned, each.path, each.dtype, by_op.get((each.op, each.dtype)), each.reason)
            for each in dispatch.current().ran(since)
        ]
        host = [each for each in self.ops if each.op in (selftest_host.SAMPLER, selftest_host.SWAP_COPY)]
        found += [_path(each.op, selftest_host.PATH, selftest_host.PATH, each.dtype, each) for each in host]
        found += [_path(each.use, each.path, each.path, each.outcome.dtype, each.outcome) for each in self.forms]
        return tuple(sorted(found, key=lambda each: (each.op, each.dtype, each.path)))


def is_strict(hardware: config.HardwareConfig) -> bool:
    """`hardware.strictKernels`, resolved: by default on a device, not on a processor. A device's worker is made with
    `hardware.device` resolved, so that auto here is the processor."""
    on_device = hardware.device not in ("cpu", config.AUTO)
    return on_device if hardware.strict_kernels is None else hardware.strict_kernels


def refuse_missing() -> None:
    """Where `is_strict`, before anything is loaded. Raises `KernelPathError`."""
    chosen = dispatch.current()
    if chosen.library is None:
        refuse(status.KernelPath(op, dispatch.COMPILED, dispatch.TORCH, "", reason=chosen.reason) for op in ALWAYS)


def refuse(paths: Iterable[status.KernelPath]) -> None:
    """Where `is_strict`. Raises `KernelPathError` where a path is not the planned one."""
    wrong = [each for each in paths if not each.is_planned]
    if not wrong:
        return
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for each in wrong:
        key = (each.planned, each.path, each.reason or "no reason given")
        by_reason.setdefault(key, []).append(f"{each.op} ({each.dtype})" if each.dtype else each.op)
    told = "; ".join(
        f"{', '.join(dict.fromkeys(ops))}: planned on {planned}, but {path} would run them: {reason}"
        for (planned, path, reason), ops in by_reason.items()
    )
    raise errors.KernelPathError(
        f"hardware.strictKernels is true. {told}. Then start again. Or set hardware.strictKernels to false: then it "
        "serves slowly, and /status and the metric tidemark_kernel_paths_unplanned say so."
    )


def run(loaded: loading.Loaded) -> Tested:
    """Raises `SelfTestFailed` with every op that gives wrong numbers."""
    started = time.perf_counter()
    before = dispatch.current().calls
    dtype: torch.dtype = getattr(torch, loaded.facts.dtype)
    with torch.inference_mode():
        forms = [selftest_layers.run(probe, dtype) for probe in loaded.probes]
        products = {each.op for each in dispatch.current().ran(before)}
        ops = every.run(target_of(loaded, dtype), products.union(ALWAYS))
        ops += outcomes.worst(selftest_host.sampler())
        if loaded.facts.num_host_pages:
            ops += selftest_host.swap_copy(loaded.facts.layout.page_bytes)
    found = [*ops, *(form.outcome for form in forms)]
    for outcome in found:
        _LOGGER.debug(
            "self-test op=%s dtype=%s ok=%s largest_error=%.3g tolerance=%.3g compared=%r",
            *(outcome.op, outcome.dtype, outcome.ok, outcome.error, outcome.tolerance, outcome.note),
        )
    seconds, num_failed = time.perf_counter() - started, sum(not outcome.ok for outcome in found)
    _LOGGER.info("self-test of the kernels compared=%d failed=%d seconds=%.3f", len(found), num_failed, seconds)
    _refuse_failed(found)
    return Tested(tuple(ops), tuple(_worst_forms(forms)))


def target_of(loaded: loading.Loaded, dtype: torch.dtype) -> target.Target:
    """The model as its kernels see it."""
    spec, memory = loaded.model.spec, loaded.memory
    return target.Target(
        heads=steps.HeadShape(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rotary_dim=spec.rope_dim,
            eps=spec.rms_eps,
        ),
        dtype=dtype,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        block_size=memory.block_size,
        page_bytes=memory.layout.page_bytes,
        layers=[target.Layer(part, spec.window(layer)) for layer, part in enumerate(memory.segments)],
        head_norms=spec.qk_norm,
        formats=tuple(dict.fromkeys(each for probe in loaded.probes for each in probe.formats)),
    )


def _path(
    op: str, planned: str, path: str, dtype: str, outcome: outcomes.Outcome | None, reason: str = ""
) -> status.KernelPath:
    if outcome is None:
        return status.KernelPath(op, planned, path, dtype, reason=reason)
    return status.KernelPath(op, planned, path, dtype, status.SelfTest.OK, outcome.error, outcome.tolerance, reason)


def _worst_forms(forms: Sequence[selftest_layers.Form]) -> list[selftest_layers.Form]:
    """One for each use, path and dtype: widths are told apart in messages only."""
    kept: dict[tuple[str, str, str], selftest_layers.Form] = {}
    for form in sorted(forms, key=lambda form: form.outcome.severity):
        kept[form.use, form.path, form.outcome.dtype] = form
    return list(kept.values())


def _refuse_failed(found: Sequence[outcomes.Outcome]) -> None:
    failed = [outcome for outcome in found if not outcome.ok]
    if not failed:
        return
    told = "; ".join(
        f"{each.op} in {each.dtype} has an error of {each.error:.3g} against its reference, expected at most "
        f"{each.tolerance:g} ({each.note})"
        for each in failed
    )
    library = dispatch.current().library
    remedy = "Report this: plain torch is wrong here"
    if library is not None:
        remedy = (
            f"Delete {library.path}, so that the kernels are compiled again, or put another C compiler "
            f"({', '.join(build.COMPILERS)}) first in PATH"
        )
    raise errors.SelfTestFailed(f"kernels give wrong numbers on this machine, and nothing is served: {told}. {remedy}.")
