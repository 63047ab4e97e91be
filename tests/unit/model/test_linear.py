"""Every form of a weight matrix against the matrix itself, and the factory that chooses among them."""

from __future__ import annotations

import pytest
import torch

from tidemark_runtime.model import linear, tensors
from tidemark_runtime.model.linear_forms import dense

GROUPED_FORMS = (linear.Form.GROUPED, linear.Form.PACKED4)


def make_grouped(
    num_rows: int, width: int, *, bits: int = 4, group_size: int = 32, mins: bool = True, seed: int = 0
) -> tensors.Grouped:
    generator = torch.Generator().manual_seed(seed)
    low, high, dtype = (0, 16, torch.uint8) if bits == 4 else (-127, 128, torch.int8)
    shape = (num_rows, width // group_size)
    return tensors.Grouped(
        quants=torch.randint(low, high, (num_rows, width), generator=generator).to(dtype),
        scales=(torch.rand(shape, generator=generator) * 0.01 + 0.001).half().float(),
        mins=(torch.randn(shape, generator=generator) * 0.05).half().float() if mins else None,
        bits=bits,
        group_size=group_size,
    )


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def policy(form: linear.Form, dtype: torch.dtype = torch.float32) -> linear.LinearPolicy:
    return linear.LinearPolicy(dtype, {storage: linear.FormsByRows.always(form) for storage in linear.Storage})


def close(seen: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    return bool((seen - expected).abs().max() <= tolerance * expected.abs().max())


@pytest.mark.parametrize("num_rows", [1, 2, 7, 33])
@pytest.mark.parametrize("form", GROUPED_FORMS)
@pytest.mark.parametrize("mins", [True, False])
def test_four_bit_forms_compute_what_the_groups_say(form: linear.Form, num_rows: int, mins: bool) -> None:
    weight, bias, x = make_grouped(48, 96, mins=mins), random(48), random(num_rows, 96, seed=2)
    layer = linear.make_form(form, [weight], bias, torch.float32)
    expected = torch.nn.functional.linear(x.double(), weight.dequantize().double(), bias.double())
    assert layer(x).dtype is torch.float32
    assert layer.num_outputs == 48
    assert close(layer(x).double(), expected, 1e-5)


@pytest.mark.parametrize("group_size", [16, 32])
def test_eight_bit_groups(group_size: int) -> None:
    weight, x = make_grouped(20, 64, bits=8, group_size=group_size, mins=False), random(3, 64)
    layer = linear.make_form(linear.Form.GROUPED, [weight], None, torch.float32)
    assert close(layer(x), x @ weight.dequantize().t(), 1e-5)


@pytest.mark.parametrize("form", [linear.Form.PLAIN, linear.Form.PANELS])
def test_dense_float32(form: linear.Form) -> None:
    weight, bias, x = random(40, 24), random(40, seed=3), random(5, 24, seed=4)
    layer = linear.make_form(form, [weight], bias, torch.float32)
    assert close(layer(x), torch.nn.functional.linear(x, weight, bias), 1e-5)


@pytest.mark.parametrize("form", [linear.Form.GROUPED, linear.Form.INT8, linear.Form.PANELS])
def test_a_row_does_not_depend_on_the_rows_beside_it(form: linear.Form) -> None:
    layer = linear.make_form(form, [make_grouped(48, 96)], None, torch.float32)
    x = random(19, 96)
    x[0] *= 100  # would change a scale that all rows shared
    alone = torch.cat([layer(row.unsqueeze(0)) for row in x])
    assert torch.equal(layer(x), alone)


def test_packed4_takes_only_what_the_kernel_can_and_the_rest_stays_grouped() -> None:
    odd_rows = linear.make_form(linear.Form.PACKED4, [make_grouped(40, 64)], None, torch.float32)
    even_rows = linear.make_form(linear.Form.PACKED4, [make_grouped(64, 64)], None, torch.float32)
    assert odd_rows.path == "grouped4"
    assert even_rows.path == "packed4-torch"


@pytest.mark.parametrize("num_rows", [1, 5, 64])
def test_blocked_layout(num_rows: int) -> None:
    """In float32, which every processor can; the layout's bfloat16 needs AVX-512."""
    weight, bias, x = random(64, 96), random(64, seed=3), random(num_rows, 96, seed=4)
    layer = dense.BlockedLinear(weight, bias, torch.float32)
    assert layer.path == "float32-onednn"
    assert layer.num_bytes == (64 * 96 + 64) * 4
    assert close(layer(x), torch.nn.functional.linear(x, weight, bias), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_keep_their_dtype(dtype: torch.dtype) -> None:
    x = random(2, 64).to(dtype)
    for form in (linear.Form.GROUPED, linear.Form.PLAIN, linear.Form.INT8):
        layer = linear.LinearFactory(policy(form, dtype)).make("x", [make_grouped(32, 64)], None)
        assert layer(x).dtype is dtype


def test_parts_become_one_matrix_along_the_outputs() -> None:
    parts = [make_grouped(16, 64, seed=1), make_grouped(32, 64, seed=2, mins=False)]
    layer = linear.LinearFactory(policy(linear.Form.GROUPED)).make("qkv", parts, random(48))
    x = random(3, 64)
    expected = x @ torch.cat([part.dequantize() for part in parts]).t() + random(48)
    assert layer.path == "grouped4"
    assert close(layer(x), expected, 1e-5)


def test_parts_stored_differently_are_computed_side_by_side() -> None:
    """Q4_K_M keeps V in Q6_K beside Q and K in Q4_K."""
    parts = [
        make_grouped(16, 64),
        make_grouped(16, 64, seed=2),
        make_grouped(16, 64, bits=8, group_size=16, mins=False),
    ]
    factory = linear.LinearFactory(policy(linear.Form.GROUPED))
    layer = factory.make("qkv", parts, random(48))
    x = random(3, 64)
    expected = x @ torch.cat([part.dequantize() for part in parts]).t() + random(48)
    assert layer.path == "grouped4 | grouped8"
    assert layer.num_outputs == 48
    assert close(layer(x), expected, 1e-5)
    assert factory.kernel_paths == {"linear": "grouped4 | grouped8"}


def test_parts_of_different_width_are_refused() -> None:
    factory = linear.LinearFactory(policy(linear.Form.PLAIN))
    with pytest.raises(ValueError, match=r"layer.3.qkv: parts have different input widths \[32, 64\]"):
        factory.make("layer.3.qkv", [random(4, 32), random(4, 64)], None)


def test_two_forms_by_the_rows_of_the_step() -> None:
    forms = linear.FormsByRows(linear.Form.GROUPED, linear.Form.PLAIN, most_few_rows=2)
    factory = linear.LinearFactory(linear.LinearPolicy(torch.float32, {linear.Storage.GROUPED4: forms}, "measured so"))
    weight = make_grouped(16, 64)
    layer = factory.make("x", [weight], None)
    few, many = (linear.make_form(form, [weight], None, torch.float32) for form in (forms.few, forms.many))
    for num_rows in (1, 2, 3, 9):
        x = random(num_rows, 64)
        assert torch.equal(layer(x), (few if num_rows <= 2 else many)(x))
    assert layer.num_bytes == few.num_bytes + many.num_bytes == factory.num_bytes
    assert factory.kernel_paths == {"linear": "rows<=2: grouped4, more: float32"}


@pytest.mark.parametrize("form", [linear.Form.GROUPED, linear.Form.PLAIN])
def test_a_tied_head_shares_the_embedding(form: linear.Form) -> None:
    table = make_grouped(50, 64, bits=8, mins=False)
    factory = linear.LinearFactory(policy(form))
    embedding = factory.embedding(table)
    head = factory.head(embedding)
    ids, x = torch.tensor([0, 49, 7, 7]), random(3, 64)
    assert torch.equal(embedding(ids), table.dequantize()[ids])
    assert close(head(x), x @ table.dequantize().t(), 1e-5)
    assert head.num_bytes == 0
    assert factory.num_bytes == embedding.num_bytes


def test_logits_are_float32_also_in_bfloat16() -> None:
    for form in (linear.Form.GROUPED, linear.Form.PLAIN, linear.Form.INT8):
        factory = linear.LinearFactory(policy(form, torch.bfloat16))
        x = random(2, 64).bfloat16()
        embedding = factory.embedding(random(48, 64))
        assert embedding(torch.tensor([1])).dtype is torch.bfloat16
        assert factory.head(embedding)(x).dtype is torch.float32
        assert factory.head(make_grouped(48, 64))(x).dtype is torch.float32


def test_an_untied_head_counts_its_memory() -> None:
    factory = linear.LinearFactory(policy(linear.Form.PLAIN))
    factory.head(random(48, 64))
    assert factory.num_bytes == 48 * 64 * 4
    assert factory.kernel_paths == {"head": "float32"}


def test_a_dense_matrix_in_the_right_dtype_is_not_copied() -> None:
    weight = random(8, 4)
    assert linear.expand([weight], torch.float32).data_ptr() == weight.data_ptr()
    assert torch.equal(linear.expand([weight, weight], torch.float32), torch.cat([weight, weight]))
