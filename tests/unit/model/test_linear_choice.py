"""Which forms are tried, and which win, with made-up timings."""

from __future__ import annotations

import pytest
import torch

from tidemark_runtime.model import linear, linear_choice, tensors
from tidemark_runtime.model.linear_forms import dense

Form, Storage = linear.Form, linear.Storage

EXACT = {Form.GROUPED, Form.HALF, Form.PANELS}
"""A row has the same bits however many rows a step has (tests/unit/kernels)."""


def grouped(bits: int = 4) -> tensors.Grouped:
    dtype = torch.uint8 if bits == 4 else torch.int8
    return tensors.Grouped(torch.ones(64, 64, dtype=dtype), torch.ones(64, 2), None, bits, 32)


def rules(
    dtype: torch.dtype = torch.bfloat16, quantization: str = "auto", limit: int = 1 << 40, *, has_kernels: bool = True
) -> linear_choice.Rules:
    return linear_choice.Rules(
        dtype=dtype,
        quantization=quantization,
        num_elements=10**6,
        memory_limit_bytes=limit,
        has_kernels=has_kernels,
    )


class Timings:
    """Seconds = fixed + per row, by form; remembers which forms were tried."""

    def __init__(self, costs: dict[Form, tuple[float, float]]) -> None:
        self._costs = costs
        self.tried: set[Form] = set()

    def __call__(self, form: Form, matrix: linear_choice.Matrix, num_rows: int) -> float:
        self.tried.add(form)
        fixed, per_row = self._costs[form]
        return fixed + per_row * num_rows


@pytest.fixture
def fast_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "bfloat16_is_fast", lambda: True)


@pytest.fixture
def slow_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "bfloat16_is_fast", lambda: False)


@pytest.mark.parametrize("quantization", ["auto", "none", "int8_weight_only"])
def test_only_forms_whose_rows_keep_their_bits_compete_in_float32(quantization: str) -> None:
    """However fast the others are: a text would depend on what else runs."""
    timings = Timings({form: (1.0, 1.0) if form in EXACT else (0.0, 0.0) for form in Form})
    sample = [[grouped()], [grouped(bits=8)], [torch.ones(64, 64)], [torch.ones(64, 64).half()]]
    policy = linear_choice.choose(sample, rules(torch.float32, quantization), timings)
    assert policy.is_exact
    assert timings.tried <= EXACT
    assert {form for forms in policy.forms.values() for form in (forms.few, forms.many)} <= EXACT
    assert "another text" not in policy.measured


def test_without_our_kernels_all_forms_compete_and_the_policy_says_what_that_means() -> None:
    timings = Timings({Form.GROUPED: (9.0, 9.0), Form.PACKED4: (1.0, 1.0)})
    policy = linear_choice.choose([[grouped()]], rules(torch.float32, has_kernels=False), timings)
    assert policy.forms_for(Storage.GROUPED4).few is Form.PACKED4
    assert not policy.is_exact
    assert "the same request can get another text" in policy.measured


@pytest.mark.usefixtures("slow_bfloat16")
def test_the_faster_form_for_all_rows_is_held_alone() -> None:
    timings = Timings({Form.GROUPED: (1.0, 1.0), Form.PACKED4: (2.0, 2.0)})
    policy = linear_choice.choose([[grouped()]], rules(), timings)
    assert policy.forms_for(Storage.GROUPED4) == linear.FormsByRows.always(Form.GROUPED)
    assert timings.tried == {Form.GROUPED, Form.PACKED4}
    assert policy.measured == (
        "4-bit weights: grouped (ms of sampled layers at 1/64 rows: grouped 2e+03/6.5e+04, packed4 4e+03/1.3e+05); "
        "sums depend on how many rows a step has, so that the same request can get another text beside others"
    )


@pytest.mark.usefixtures("slow_bfloat16")
def test_a_second_form_where_it_is_clearly_faster_and_where_it_begins() -> None:
    timings = Timings({Form.GROUPED: (9.0, 1.0), Form.PACKED4: (1.0, 2.0)})
    forms = linear_choice.choose([[grouped()]], rules(), timings).forms_for(Storage.GROUPED4)
    assert forms == linear.FormsByRows(Form.PACKED4, Form.GROUPED, most_few_rows=8)


@pytest.mark.usefixtures("slow_bfloat16")
def test_a_hopeless_form_is_not_tried_with_many_rows() -> None:
    tried: list[tuple[Form, int]] = []

    def timer(form: Form, matrix: linear_choice.Matrix, num_rows: int) -> float:
        tried.append((form, num_rows))
        return 1.0 if form is Form.GROUPED else 50.0

    policy = linear_choice.choose([[grouped()]], rules(), timer)
    assert (Form.PACKED4, 64) not in tried
    assert (Form.GROUPED, 64) in tried
    assert "grouped 1e+03/1e+03, packed4 5e+04/not tried)" in policy.measured


@pytest.mark.usefixtures("slow_bfloat16")
def test_no_second_form_for_a_small_gain_or_where_memory_is_short() -> None:
    slightly = Timings({Form.GROUPED: (1.0, 1.0), Form.PACKED4: (2.0, 0.9)})
    forms = linear_choice.choose([[grouped()]], rules(), slightly).forms_for(Storage.GROUPED4)
    assert forms == linear.FormsByRows.always(Form.GROUPED)
    clearly = Timings({Form.GROUPED: (1.0, 1.0), Form.PACKED4: (2.0, 0.1)})
    forms = linear_choice.choose([[grouped()]], rules(limit=3 * 10**6), clearly).forms_for(Storage.GROUPED4)
    assert forms == linear.FormsByRows.always(Form.GROUPED)


@pytest.mark.usefixtures("fast_bfloat16")
def test_bfloat16_for_many_rows_where_the_processor_is_fast_in_it() -> None:
    timings = Timings({Form.GROUPED: (1.0, 1.0), Form.PACKED4: (2.0, 2.0), Form.BLOCKED_BFLOAT16: (0.5, 0.2)})
    forms = linear_choice.choose([[grouped()]], rules(torch.bfloat16), timings).forms_for(Storage.GROUPED4)
    assert forms == linear.FormsByRows(Form.GROUPED, Form.BLOCKED_BFLOAT16, most_few_rows=1)


def test_quantization_none_expands_groups() -> None:
    timings = Timings({Form.PANELS: (1.0, 1.0)})
    policy = linear_choice.choose([[grouped()], [torch.ones(64, 64)]], rules(torch.float32, "none"), timings)
    assert {policy.forms_for(storage).few for storage in Storage} == {Form.PANELS}


def test_int8_is_for_everything_and_measures_nothing() -> None:
    policy = linear_choice.choose([[grouped()]], rules(quantization="int8"), Timings({}))
    assert policy.has_int8
    assert {policy.forms_for(storage).many for storage in Storage} == {Form.INT8}


@pytest.mark.usefixtures("slow_bfloat16")
def test_bfloat16_without_fast_kernels_has_one_form_only() -> None:
    policy = linear_choice.choose([[torch.ones(64, 64)]], rules(torch.bfloat16), Timings({}))
    assert policy.forms_for(Storage.DENSE) == linear.FormsByRows.always(Form.PLAIN)
    assert policy.measured.startswith("sums depend")


@pytest.mark.usefixtures("slow_bfloat16")
def test_storages_that_the_sample_lacks_keep_their_groups() -> None:
    timings = Timings({Form.GROUPED: (1.0, 1.0), Form.PACKED4: (2.0, 2.0)})
    policy = linear_choice.choose([[grouped()]], rules(), timings)
    assert policy.forms_for(Storage.GROUPED8).few is Form.GROUPED
    assert policy.forms_for(Storage.DENSE).few is Form.PLAIN


def test_the_real_stopwatch_finds_a_policy() -> None:
    policy = linear_choice.choose([[grouped()], [grouped(bits=8)], [torch.ones(64, 64)]], rules())
    assert set(policy.forms) == set(Storage)
    assert "4-bit weights: " in policy.measured
    assert "dense weights: " in policy.measured


@pytest.mark.usefixtures("fast_bfloat16")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_dtype_does_not_depend_on_the_processor(wanted: str, expected: torch.dtype) -> None:
    assert linear_choice.resolve_dtype(wanted) is expected
