"""What counts as a lack of memory, and what the worker makes of it; and the steps whose time is told by op."""

from __future__ import annotations

import errno
import mmap

import pytest
import torch

from tidemark_kernels import dispatch
from tidemark_runtime import errors
from tidemark_runtime.contract import metrics, reasons
from tidemark_runtime.model.linear_forms import base
from tidemark_runtime.worker import op_times, out_of_memory, process_group

HUGE = 1 << 60


def numpy_fails() -> None:
    import numpy as np

    np.zeros(HUGE, dtype=np.uint8)


def system_fails() -> None:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def kernel_fails() -> None:
    raise MemoryError("no memory for the parts of an attention over 3 tokens")


def card_fails() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    "fails",
    [
        *(lambda: torch.empty(HUGE, dtype=torch.uint8), lambda: bytearray(HUGE), lambda: mmap.mmap(-1, HUGE)),
        *(numpy_fails, system_fails, kernel_fails, card_fails),
    ],
)
def test_whoever_notices_it_it_is_a_lack_of_memory(fails) -> None:
    with (
        pytest.raises(errors.OutOfMemory, match=r"^memory ran out in a step: .*\S") as seen,
        out_of_memory.told("in a step"),
    ):
        fails()
    assert "\n" not in str(seen.value)
    assert reasons.of_error(type(seen.value).__name__) is reasons.Reason.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes do not match"), OSError(errno.EIO, "I/O error"), ValueError("a wrong plan")]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as seen, out_of_memory.told("in a step"):
        raise error
    assert seen.value is error


def test_the_first_of_64_steps_is_timed() -> None:
    assert [step for step in range(200) if op_times.is_timed(step)] == [1, 65, 129, 193]
    assert op_times.TIMED_EVERY == 64
    assert "one step in 64 is timed" in metrics.OP_DURATION.help


def test_the_parts_of_a_step_are_the_step() -> None:
    seconds = op_times.of_step({"rms_norm": 0.2, "sampler": 0.1}, execute_seconds=1.0, swap_seconds=0.3)
    assert seconds == pytest.approx({"rms_norm": 0.2, "sampler": 0.1, "swap_copy": 0.3, "other": 0.4})
    assert op_times.of_step({"rms_norm": 0.2}, 0.1, 0.0)["other"] == 0.0


def test_the_labels_values_are_known_beforehand() -> None:
    own = {op_times.SAMPLER, op_times.SWAP_COPY, op_times.OTHER, base.TIMED_AS, process_group.ALL_REDUCE}
    assert set(metrics.OPS) == set(dispatch.OPS) | own
