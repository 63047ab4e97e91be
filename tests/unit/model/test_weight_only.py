"""`int8_weight_only` and `fp8_weight_only`: what is rounded, how far from the weights, and what is left alone."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch
from tidemark_runtime import errors
from tidemark_runtime.model import linear, linear_choice, tensors
from tidemark_runtime.model.linear_forms import fp8, rounding

ROUNDINGS = ("int8_weight_only", "fp8_weight_only")


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rules_of(quantization: str, dtype: torch.dtype = torch.float32, limit_bytes: int = 1 << 40) -> linear_choice.Rules:
    return linear_choice.Rules(
        dtype=dtype,
        quantization=quantization,
        num_elements=10**6,
        memory_limit_bytes=limit_bytes,
        has_kernels=True,
    )


def policy(quantization: str, dtype: torch.dtype = torch.float32) -> linear.LinearPolicy:
    return linear_choice.choose([[random(64, 64)]], rules_of(quantization, dtype))


def test_e4m3_is_the_nearest_number_with_one_scale_a_row() -> None:
    weight = random(40, 96) * torch.logspace(-4, 1, 40).unsqueeze(1)
    made = fp8.quantize(weight)
    assert (made.kind, made.bits, made.group_size) == ("-e4m3", 8, 96)
    assert torch.equal(made.scales, weight.abs().amax(1, keepdim=True) / 448)
    error = (made.dequantize() - weight).abs()
    # Half a step: 2^-4 of the number, or half a subnormal step of 2^-9 scales.
    assert bool((error <= torch.maximum(weight.abs() / 16, made.scales * 2**-10) * 1.0001).all())
    assert bool((error > 0).any())


def test_a_row_of_zeros_stays_zeros() -> None:
    weight = random(4, 32)
    weight[2] = 0
    for quantization in ROUNDINGS:
        made = rounding.rounded("x", weight, quantization)
        assert bool((made.dequantize()[2] == 0).all())


@pytest.mark.parametrize(
    ("quantization", "path", "tolerance"),
    [
        ("int8_weight_only", "grouped8", 0.01),
        ("fp8_weight_only", "grouped-e4m3", 0.05),
    ],
)
@pytest.mark.parametrize("num_rows", [1, 9])
def test_activations_are_not_rounded(quantization: str, path: str, tolerance: float, num_rows: int) -> None:
    parts, bias, x = [random(48, 64), random(32, 64, seed=2)], random(80), random(num_rows, 64, seed=3)
    factory = linear.LinearFactory(policy(quantization))
    layer = factory.make("x", parts, bias)
    exact = torch.cat([rounding.rounded("x", part, quantization).dequantize() for part in parts])
    expected = x.double() @ exact.double().t() + bias
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)
    assert layer.path == path
    true = x @ torch.cat(parts).t() + bias
    assert 0 < float((layer(x) - true).norm() / true.norm()) < tolerance
    assert factory.kernel_paths == {"linear": path}


@pytest.mark.parametrize("quantization", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_embedding_and_head_are_kept_in_their_own_bits(quantization: str, dtype: torch.dtype) -> None:
    table, x = random(50, 64).to(dtype), random(3, 64, seed=2)
    factory = linear.LinearFactory(policy(quantization))
    embedding, head = factory.embedding(table), factory.head(table)
    ids = torch.tensor([0, 49, 7, 7])
    assert torch.equal(embedding(ids), table[ids].float())
    for output in (head, embedding.as_head()):
        assert output(x).dtype is torch.float32
        torch.testing.assert_close(output(x), x @ table.float().t(), rtol=1e-5, atol=1e-5)
    padded = 50 + -50 % dispatch.current().panel_width
    assert embedding.num_bytes == padded * 64 * dtype.itemsize
    assert factory.kernel_paths["embedding"] == f"{str(dtype).removeprefix('torch.')}-panels"


@pytest.mark.parametrize("quantization", ROUNDINGS)
def test_groups_of_the_file_stay_as_they_are(quantization: str) -> None:
    weight = tensors.Grouped(torch.ones(32, 64, dtype=torch.uint8), torch.ones(32, 2), None, 4, 32)
    assert rounding.rounded("x", weight, quantization) is weight
    assert linear.LinearFactory(policy(quantization)).make("x", [weight], None).path == "grouped4"


@pytest.mark.parametrize("quantization", ROUNDINGS)
def test_what_cannot_be_rounded_is_refused_by_name(quantization: str) -> None:
    factory = linear.LinearFactory(policy(quantization))
    with pytest.raises(
        errors.UnsupportedModel, match=rf"layer.q: a matrix of 8 x 40 .* {quantization} needs a multiple of 16"
    ):
        factory.make("layer.q", [random(8, 40)], None)
    wrong = random(8, 64)
    wrong[3, 3] = torch.nan
    with pytest.raises(errors.CorruptModel, match=rf"layer.q: a weight is no finite number.* {quantization}"):
        factory.make("layer.q", [wrong], None)


def test_a_weight_too_large_for_the_kernel_is_refused() -> None:
    with pytest.raises(errors.CorruptModel, match="a scale would be 223"):
        rounding.rounded("x", torch.full((2, 16), 1e5), "fp8_weight_only")


def test_none_expands_the_tables_too() -> None:
    table = random(64, 64).half()
    factory = linear.LinearFactory(policy("none"))
    assert factory.embedding(table).num_bytes == 64 * 64 * 4
    assert linear.LinearFactory(policy("auto")).embedding(table).num_bytes == 64 * 64 * 2


def test_a_float32_table_gives_a_row_the_same_logits_whatever_stands_beside_it() -> None:
    """The head on an embedding's own panels, and one with a table of its own."""
    table, x = random(70, 96), random(33, 96, seed=2)
    factory = linear.LinearFactory(policy("none"))
    for head in (factory.embedding(table).as_head(), factory.head(table)):
        assert head.path == "float32-panels"
        together = head(x)
        assert torch.equal(together, torch.cat([head(x[row : row + 1]) for row in range(33)]))
        torch.testing.assert_close(together, x @ table.t(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="70"):
        factory.embedding(table)(torch.tensor([3, 70]))


def test_dense_16_bits_are_a_form_where_the_file_has_them() -> None:
    def timer(form: linear.Form, matrix: linear_choice.Matrix, num_rows: int) -> float:
        tried.append(form)
        return 1.0

    for dtype, quantization, first in (
        (torch.bfloat16, "auto", linear.Form.HALF),
        (torch.float32, "auto", linear.Form.PANELS),
        (torch.bfloat16, "none", linear.Form.PANELS),
    ):
        tried: list[linear.Form] = []
        chosen = linear_choice.choose([[random(64, 64).to(dtype)]], rules_of(quantization), timer)
        assert chosen.forms_for(linear.Storage.DENSE) == linear.FormsByRows.always(first)
        assert (linear.Form.HALF in tried) == (first is linear.Form.HALF)


def test_dense_16_bits_compute_the_exact_weights() -> None:
    parts, x = [random(48, 64).half(), random(16, 64, seed=2).half()], random(5, 64, seed=3)
    layer = linear.make_form(linear.Form.HALF, parts, random(64), torch.float32)
    torch.testing.assert_close(layer(x), x @ torch.cat(parts).float().t() + random(64), rtol=1e-5, atol=1e-5)
    assert (layer.path, layer.num_bytes) == ("float16-panels", 64 * 64 * 2 + 64 * 4)
    mixed = linear.make_form(linear.Form.HALF, [parts[0], parts[1].bfloat16()], None, torch.float32)
    assert mixed.path == "float32-panels"


def test_a_second_dense_form_costs_four_bytes_a_weight() -> None:
    def timer(form: linear.Form, matrix: linear_choice.Matrix, num_rows: int) -> float:
        return 1.0 if num_rows == 1 or form is linear.Form.PANELS else 2.0

    for limit, forms in ((15 * 10**6, {linear.Form.HALF}), (17 * 10**6, {linear.Form.HALF, linear.Form.PANELS})):
        rules = rules_of("auto", limit_bytes=limit)
        chosen = linear_choice.choose([[random(64, 64).half()]], rules, timer).forms_for(linear.Storage.DENSE)
        assert {chosen.few, chosen.many} == forms
