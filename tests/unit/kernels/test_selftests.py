"""Each op has a self-test; it passes on every path, and finds one wrong number, page or byte."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tidemark_kernels import dispatch, ops, segments, steps
from tidemark_kernels.cpu import library
from tidemark_kernels.selftests import attention, every, outcomes, target

HEAD_DIM, BLOCK_SIZE = 32, 4
STEP_METHODS = {"attend": {"rope_and_write", "paged_attention"}}
"""Public methods of `steps.AttentionStep` -> the ops they stand for."""


def row_bytes(dtype: torch.dtype) -> tuple[int, int]:
    """Of a row: its elements, and what it has beside them."""
    code = segments.DTYPE_CODES[dtype]
    scaled = code in segments.LARGEST or dtype is segments.INT4
    return segments.row_bytes(code, HEAD_DIM), segments.scale_bytes(code, HEAD_DIM) if scaled else 0


def layer(*dtypes: torch.dtype) -> tuple[ops.LayerSegments, int]:
    """K and V of one head after the other, two dtypes a head; and the bytes of a page."""
    at, offsets, scales = 0, [], []
    for dtype in dtypes:
        elements, beside = row_bytes(dtype)
        offsets.append(at)
        at += BLOCK_SIZE * elements
        scales.append(at if beside else segments.NO_SCALES)
        at += BLOCK_SIZE * beside
    keys, values = slice(0, None, 2), slice(1, None, 2)
    made = ops.LayerSegments.from_offsets(
        *(offsets[keys], offsets[values], dtypes[keys], dtypes[values], scales[keys], scales[values])
    )
    return made, at


def model(
    *kv_dtypes: torch.dtype, dtype: torch.dtype = torch.float32, window: int | None = None, head_norms: bool = False
) -> target.Target:
    part, page_bytes = layer(*(kv_dtypes or (torch.float32,) * 4))
    return target.Target(
        heads=steps.HeadShape(
            num_heads=2 * part.num_kv_heads,
            num_kv_heads=part.num_kv_heads,
            head_dim=HEAD_DIM,
            rotary_dim=HEAD_DIM // 2,
            eps=1e-5,
        ),
        dtype=dtype,
        hidden_size=48,
        intermediate_size=80,
        block_size=BLOCK_SIZE,
        page_bytes=page_bytes,
        layers=[target.Layer(part, window)] * 3,
        head_norms=head_norms,
        formats=(
            *(target.WeightFormat(48, bits, 16, offset) for bits in (4, 8) for offset in ("", "min", "zero")),
            target.WeightFormat(48, 8, 48, "", True),
        ),
    )


def failed(found: list[outcomes.Outcome]) -> set[str]:
    return {outcome.op for outcome in found if not outcome.ok}


# --------------------------------------------------------------------------------------------------- the table


def test_every_op_has_a_self_test() -> None:
    public = {
        name
        for name, function in inspect.getmembers(ops, inspect.isfunction)
        if not name.startswith("_") and function.__module__ == ops.__name__
    }
    assert public == set(every.EVERY) == set(dispatch.OPS)
    methods = {name for name in vars(steps.AttentionStep) if not name.startswith("_")}
    assert methods == set(STEP_METHODS)
    assert set().union(*STEP_METHODS.values()) <= set(every.EVERY)


def test_each_self_test_runs_its_op(native: dispatch.Choice) -> None:
    """One that compared the reference with itself would pass on any machine."""
    for op in every.EVERY:
        before = native.calls
        assert {outcome.op for outcome in every.run(model(), [op])} == {op}
        assert op in {each.op for each in native.ran(before)}


# -------------------------------------------------------------------------------------------------- what passes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", list(segments.DTYPE_CODES))
def test_all_pass(kernels: dispatch.Choice, dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
    found = every.run(model(kv_dtype, kv_dtype, dtype=dtype), every.EVERY)
    assert not failed(found), [outcome for outcome in found if not outcome.ok]
    name = dispatch.dtype_name(kv_dtype)
    assert {outcome.dtype for outcome in found if outcome.op == "paged_attention"} == {name}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_pass_on_the_torch_path(without_compiler: dispatch.Choice, dtype: torch.dtype) -> None:
    found = every.run(model(torch.int8, torch.bfloat16, dtype=dtype), every.EVERY)
    assert not failed(found)
    assert {each.path for each in without_compiler.ran()} == {"torch"}


@pytest.mark.parametrize(("window", "head_norms"), [(3, False), (BLOCK_SIZE, True), (None, True)])
def test_windows_and_norms_of_heads(kernels: dispatch.Choice, window: int | None, head_norms: bool) -> None:
    found = every.run(model(window=window, head_norms=head_norms), ["rope_and_write", "paged_attention"])
    assert not failed(found)


def test_a_mixed_map_has_an_outcome_for_each_dtype(kernels: dispatch.Choice) -> None:
    kv = (torch.int8, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fn, torch.int8, torch.int8)
    found = every.run(model(*kv), ["rope_and_write", "paged_attention"])
    assert not failed(found)
    names = ["bfloat16", "fp8_e4m3", "int8"]
    assert [(outcome.op, outcome.dtype) for outcome in found] == [
        (op, name) for op in ("paged_attention", "rope_and_write") for name in names
    ]


def test_equal_layers_are_tested_once() -> None:
    one, other = layer(torch.int8, torch.int8)[0], layer(torch.int8, torch.bfloat16)[0]
    layers = [target.Layer(one), target.Layer(other), target.Layer(one), target.Layer(one, 8)]
    assert attention.distinct(layers) == [layers[0], layers[1], layers[3]]


# ------------------------------------------------------------------------------------------------- what is found


def wrong_at(argument: int) -> Callable[[Any], Any]:
    """The first float32 of the output, whose address is this argument, is one too large."""

    def wrap(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            result = function(*arguments)
            ctypes.c_float.from_address(arguments[argument]).value += 1.0
            return result

        return run

    return wrap


def wrong_attention(function: Any) -> Any:
    def run(step: int, *arguments: Any) -> Any:
        result = function(step, *arguments)
        ctypes.c_float.from_address(library.Step.from_address(step).attention.out).value += 1.0
        return result

    return run


def wrong_write(function: Any) -> Any:
    """The last byte that belongs to a token: of the last V of its page."""

    def run(address: int, *arguments: Any) -> Any:
        result = function(address, *arguments)
        step = library.Step.from_address(address)
        page = ctypes.c_int32.from_address(step.token_page).value
        row = ctypes.c_int32.from_address(step.token_row).value
        width = 4 * step.attention.head_dim
        last = step.slab.slab + (page + 1) * step.slab.page_bytes - (step.slab.block_size - row - 1) * width - 1
        ctypes.c_uint8.from_address(last).value ^= 0x40
        return result

    return run


def wrong_page(function: Any) -> Any:
    """Bytes of every page but those of the step's first and last token are touched."""

    def run(address: int, *arguments: Any) -> Any:
        result = function(address, *arguments)
        step = library.Step.from_address(address)
        for page in range(step.slab.num_pages):
            cell = ctypes.c_uint8.from_address(step.slab.slab + page * step.slab.page_bytes)
            cell.value = 7 if cell.value == 255 else cell.value
        return result

    return run


class Broken:
    """A library of which one function is wrong."""

    def __init__(self, whole: library.Library, name: str, wrap: Callable[[Any], Any]) -> None:
        self.__dict__.update(vars(whole))
        setattr(self, name, wrap(getattr(whole, name)))


@pytest.mark.parametrize(
    ("function", "wrap", "op"),
    [
        ("linear", wrong_at(2), "grouped_linear"),
        ("linear", wrong_at(2), "dense_linear_f32"),
        ("linear", wrong_at(2), "half_linear"),
        ("linear_int8", wrong_at(3), "grouped_linear_int8"),
        ("rows", wrong_at(2), "grouped_rows"),
        ("rows", wrong_at(2), "half_rows"),
        ("rms_norm", wrong_at(4), "rms_norm"),
        ("silu_mul", wrong_at(2), "silu_mul"),
        ("attend", wrong_attention, "paged_attention"),
        ("attend", wrong_write, "rope_and_write"),
        ("attend", wrong_page, "rope_and_write"),
    ],
)
def test_a_wrong_number_is_found(
    native: dispatch.Choice, monkeypatch: pytest.MonkeyPatch, function: str, wrap: Callable[[Any], Any], op: str
) -> None:
    assert native.library is not None
    broken = dataclasses.replace(native, library=Broken(native.library, function, wrap))  # type: ignore[arg-type]
    monkeypatch.setattr(dispatch, "current", lambda: broken)
    assert failed(every.run(model(), [op])) == {op}


def test_what_is_no_number_has_failed() -> None:
    for have in (math.nan, math.inf):
        error = outcomes.difference(torch.tensor([1.0, have]), torch.tensor([1.0, 1.0]))
        assert not outcomes.Outcome("op", "float32", error, 1e9).ok
    assert outcomes.difference(torch.zeros(2), torch.zeros(2)) == 0.0
    assert outcomes.difference(torch.ones(2), torch.zeros(2)) == math.inf
    assert outcomes.equal(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan])) == math.inf


def test_the_worst_is_kept() -> None:
    fine, near = outcomes.Outcome("op", "int8", 0.5, 1.0), outcomes.Outcome("op", "int8", 1e-9, 0.0)
    assert outcomes.worst([fine, near, fine]) == [near]
    assert outcomes.worst([near, fine]) == [near]
    exact = outcomes.Outcome("op", "int8", 0.0, 0.0)
    assert outcomes.worst([exact, fine]) == [fine]


# ------------------------------------------------------------------------------------------------ what is counted


def test_both_paths_count_every_op(native: dispatch.Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    every.run(model(), every.EVERY)
    slow = dispatch.choose(find=lambda: None)
    monkeypatch.setattr(dispatch, "current", lambda: slow)
    every.run(model(), every.EVERY)
    for chosen, path in ((native, "cpu-c"), (slow, "torch")):
        assert {each.op for each in chosen.ran() if each.path == path} >= set(dispatch.OPS)


def test_what_ran_before_does_not_count(native: dispatch.Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = dataclasses.replace(native, counts={})
    monkeypatch.setattr(dispatch, "current", lambda: chosen)
    ops.silu_mul(torch.zeros(2, 8))
    before = chosen.calls
    assert chosen.ran(before) == []
    ops.rms_norm(torch.ones(2, 8), torch.ones(8), 1e-5)
    assert chosen.ran(before) == [dispatch.OpPath("rms_norm", "cpu-c", "cpu-c", "float32")]
    assert [each.op for each in chosen.ran()] == ["rms_norm", "silu_mul"]


def test_weights_for_another_width_are_seen_to_run_on_torch(
    native: dispatch.Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a library, and it is not what computes: nobody would notice but the one who waits."""
    chosen = dataclasses.replace(native, counts={})
    monkeypatch.setattr(dispatch, "current", lambda: chosen)
    quants = torch.zeros(20, 32, dtype=torch.uint8)
    weight = ops.GroupedWeight.pack(quants, torch.ones(20, 2), None, 4, 16, panel_width=chosen.panel_width * 2)
    ops.grouped_linear(torch.ones(1, 32), weight)
    (seen,) = chosen.ran()
    assert (seen.op, seen.planned, seen.path, seen.is_planned) == ("grouped_linear", "cpu-c", "torch", False)
    assert f"not in panels of {chosen.panel_width}" in seen.reason
