"""A kernel that computes something else keeps an engine from being ready, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import quick_interpreter
import torch

from tidemark_kernels import device_dispatch, segments, steps
from tidemark_kernels.device import attention, elementwise, kv_write, sampling
from tidemark_kernels.selftests import device_ops, target
from tidemark_runtime.worker import accelerators, device_selftest, device_swap

HEADS = steps.HeadShape(num_heads=2, num_kv_heads=1, head_dim=16, rotary_dim=16, eps=1e-5)
BLOCK, CPU = 8, torch.device("cpu")


def layer() -> segments.LayerSegments:
    """K in 8 bits, V in 16: a map."""
    size = BLOCK * HEADS.head_dim
    return segments.LayerSegments.from_offsets(
        [0], [256], torch.int8, torch.float16, k_scales=[size], v_scales=[segments.NO_SCALES]
    )


GIVEN = target.Target(
    heads=HEADS,
    dtype=torch.float32,
    hidden_size=24,
    intermediate_size=40,
    block_size=BLOCK,
    page_bytes=512,
    layers=[target.Layer(layer())],
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_interpreter.install(monkeypatch)


def run(*ops: str) -> list[Any]:
    return device_ops.run(GIVEN, 48, CPU, op_names=frozenset(ops))


def test_every_op_that_is_decided_about_has_a_test() -> None:
    assert set(device_ops.EVERY) == set(device_dispatch.OPS)


def test_right_kernels_pass_in_every_dtype_of_a_page() -> None:
    found = run(*device_dispatch.OPS)
    assert all(each.ok for each in found), found
    assert {(each.op, each.dtype) for each in found} == {
        ("paged_attention", "int8"),
        ("paged_attention", "float16"),
        ("rms_norm", "float32"),
        ("rope_and_write", "int8"),
        ("rope_and_write", "float16"),
        ("sample", "float32"),
        ("silu_mul", "float32"),
    }


def changed(function: Callable[..., Any], how: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: how(function(*args, **kwargs))


@pytest.mark.parametrize(
    ("op", "module", "name", "how"),
    [
        ("rms_norm", elementwise, "rms_norm", lambda x: x.mul_(1.01)),
        ("silu_mul", elementwise, "silu_mul", lambda x: x.neg_()),
        ("paged_attention", attention, "paged_attention", lambda x: x.roll(1, 0)),
        ("rope_and_write", kv_write, "rope_and_write", lambda x: x),
        ("sample", sampling, "sample", lambda found: _next_token(found)),
    ],
)
def test_a_wrong_kernel_is_found(
    monkeypatch: pytest.MonkeyPatch, op: str, module: Any, name: str, how: Callable[[Any], Any]
) -> None:
    function = getattr(module, name)
    if op == "rope_and_write":  # what it writes, not what it returns

        def spoiled(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            args[10][:] ^= 1
            return found

        monkeypatch.setattr(module, name, spoiled)
    else:
        monkeypatch.setattr(module, name, changed(function, how))
    assert not all(each.ok for each in run(op))


def _next_token(found: Any) -> Any:
    found.token_ids[0] += 1
    return found


def test_copies_that_mix_up_pages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerators.Interpreter()
    assert device_selftest.swap_copy(device, 64).ok

    def wrong(self: device_swap.DeviceSwap, copies: Any) -> None:
        for copy in copies:
            self._slab[copy.page].copy_(self._host[0])

    monkeypatch.setattr(device_swap.DeviceSwap, "_copy_in", wrong)
    assert not device_selftest.swap_copy(device, 64).ok
