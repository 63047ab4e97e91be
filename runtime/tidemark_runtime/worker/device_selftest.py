"""Before an engine on a device is ready: every op of the model, on the device, against its reference.

What runs is known before the first step, since it was decided and is never changed (`device_dispatch`): so the paths
that are told hold for recorded steps, too, in which no op is called any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels import device_dispatch, dispatch, steps
from tidemark_kernels.selftests import device_ops, outcomes, target
from tidemark_runtime import errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import probes
from tidemark_runtime.worker import accelerators, device_swap, selftest_host, selftest_layers

_LOGGER = logging.getLogger(__name__)

SWAP_PATH = "copies"
"""Of the device, page by page."""
_SEED = 20_25
_ROW_COUNTS = (1, 3, 65, 257)
"""Rows of steps: one for each class that the packed product has launches for. The interpreter does the first two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tested."""

    model: batches.Model
    memory: batches.KVMemory
    probes: Sequence[probes.Probe]
    choices: device_dispatch.Choices
    accelerator: accelerators.Accelerator
    dtype: torch.dtype
    """Of activations."""
    num_host_pages: int


def run(subject: Subject) -> tuple[status.KernelPath, ...]:
    """Test all that is our kernel; returns what each op runs on, with what was found. Raises SelfTestFailed,
    CorruptModel."""
    started, device = time.perf_counter(), subject.accelerator.device
    kernels = frozenset(op for op in device_dispatch.OPS if subject.choices.runs_kernel(op))
    spec = subject.model.spec
    with torch.inference_mode():
        ops = device_ops.run(_target(subject), spec.vocab_size, device, op_names=kernels)
        rows = selftest_layers.OnDevice(_ROW_COUNTS if device.type != "cpu" else _ROW_COUNTS[:2])
        forms = [selftest_layers.run(_on_device(probe, device), subject.dtype, rows) for probe in subject.probes]
        if subject.num_host_pages:
            ops.append(swap_copy(subject.accelerator, subject.memory.layout.page_bytes))
    found = [*ops, *(form.outcome for form in forms)]
    failed = [outcome for outcome in found if not outcome.ok]
    seconds = time.perf_counter() - started
    _LOGGER.info(
        "self-test of the device's kernels compared=%d failed=%d seconds=%.3f", len(found), len(failed), seconds
    )
    if failed:
        raise errors.SelfTestFailed(_told(failed, subject.accelerator.name))
    return _paths(subject.choices, ops, forms)


def untested(choices: device_dispatch.Choices) -> tuple[status.KernelPath, ...]:
    """As `run` returns, before anything was tested."""
    return tuple(
        status.KernelPath(each.op, each.planned, each.path, each.dtype, reason=each.reason) for each in choices.paths
    )


def swap_copy(accelerator: accelerators.Accelerator, page_bytes: int) -> outcomes.Outcome:
    """Out, overwritten, and in to other pages: every byte."""
    seeded = torch.Generator().manual_seed(_SEED)
    kept = torch.randint(0, 256, (4, page_bytes), dtype=torch.uint8, generator=seeded)
    slab = kept.to(accelerator.device, copy=True)
    accelerator.give_back()  # the slab is there before other streams read it
    space, stream = device_swap.DeviceSwap(accelerator, slab, 2), accelerator.stream()
    out = step_plan.StepPlan(step=1, swaps_out=(step_plan.Copy(0, 1), step_plan.Copy(2, 0)))
    back = step_plan.StepPlan(step=2, swaps_in=(step_plan.Copy(3, 1), step_plan.Copy(0, 0)))
    with stream:
        for plan in (out, back):
            before = accelerator.event()
            before.record()
            space.copy(plan, before)
            for copied in space.waits(step_plan.StepPlan(step=3, swaps_in=(*plan.swaps_out, *plan.swaps_in))):
                copied.wait()
            if plan is out:
                slab[0] = 0
                slab[2] = 0
    stream.synchronize()
    same = torch.equal(slab.cpu()[[3, 0, 1]], kept[[0, 2, 1]])
    note = "two pages out and back, and one that nobody moved"
    return outcomes.Outcome(selftest_host.SWAP_COPY, "uint8", 0.0 if same else float("inf"), 0.0, note)


def _target(subject: Subject) -> target.Target:
    spec, memory = subject.model.spec, subject.memory
    return target.Target(
        heads=steps.HeadShape(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rotary_dim=spec.rope_dim,
            eps=spec.rms_eps,
        ),
        dtype=subject.dtype,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        block_size=memory.block_size,
        page_bytes=memory.layout.page_bytes,
        layers=[target.Layer(part, spec.window(layer)) for layer, part in enumerate(memory.segments)],
        head_norms=spec.qk_norm,
    )


def _on_device(probe: probes.Probe, device: torch.device) -> probes.Probe:
    """The same, with a layer that is given the processor's tensors and gives such back."""

    def layer(x: torch.Tensor) -> torch.Tensor:
        return probe.layer(x.to(device)).cpu()

    return probes.Probe(probe.use, probe.name, probe.path, layer, probe.rows, probe.weight, probe.bias, probe.formats)


def _paths(
    choices: device_dispatch.Choices, ops: Sequence[outcomes.Outcome], forms: Sequence[selftest_layers.Form]
) -> tuple[status.KernelPath, ...]:
    by_op = {(outcome.op, outcome.dtype): outcome for outcome in ops}
    found = [_path(each, by_op.get((each.op, each.dtype))) for each in choices.paths]
    found += [
        _path(dispatch.OpPath(each.op, SWAP_PATH, SWAP_PATH, each.dtype), each)
        for each in ops
        if each.op == selftest_host.SWAP_COPY
    ]
    worst: dict[tuple[str, str], selftest_layers.Form] = {}
    for form in sorted(forms, key=lambda form: form.outcome.severity):
        worst[form.use, form.path] = form
    found += [
        _path(dispatch.OpPath(form.use, form.path, form.path, form.outcome.dtype), form.outcome)
        for form in worst.values()
    ]
    return tuple(sorted(found, key=lambda each: (each.op, each.dtype, each.path)))


def _path(each: dispatch.OpPath, outcome: outcomes.Outcome | None) -> status.KernelPath:
    if outcome is None:
        return status.KernelPath(each.op, each.planned, each.path, each.dtype, reason=each.reason)
    found = (status.SelfTest.OK, outcome.error, outcome.tolerance, each.reason)
    return status.KernelPath(each.op, each.planned, each.path, each.dtype, *found)


def _told(failed: Sequence[outcomes.Outcome], name: str) -> str:
    told = "; ".join(
        f"{each.op} in {each.dtype} has an error of {each.error:.3g} against its reference, expected at most "
        f"{each.tolerance:g} ({each.note})"
        for each in failed
    )
    return (
        f"kernels give wrong numbers on {name}, and nothing is served: {told}. Delete the folder that TRITON_CACHE_DIR "
        "names, so that they are compiled again; if that does not help, check the device, its driver and Triton's "
        "version, and report this."
    )
