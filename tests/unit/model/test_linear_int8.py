"""8-bit activations: what becomes of dense and of grouped weights, and what is refused."""

from __future__ import annotations

import pytest
import torch

from tidemark_runtime import errors
from tidemark_runtime.model import linear, tensors
from tidemark_runtime.model.linear_forms import int8


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def grouped(num_rows: int, width: int, bits: int = 4, group_size: int = 32, seed: int = 0) -> tensors.Grouped:
    generator = torch.Generator().manual_seed(seed)
    low, high, dtype = (0, 16, torch.uint8) if bits == 4 else (-127, 128, torch.int8)
    quants = torch.randint(low, high, (num_rows, width), generator=generator).to(dtype)
    scales = torch.rand(num_rows, width // group_size, generator=generator).half().float()
    return tensors.Grouped(quants, scales, scales * -8 if bits == 4 else None, bits, group_size)


def factory(dtype: torch.dtype = torch.float32) -> linear.LinearFactory:
    forms = {storage: linear.FormsByRows.always(linear.Form.INT8) for storage in linear.Storage}
    return linear.LinearFactory(linear.LinearPolicy(dtype, forms))


def relative_error(seen: torch.Tensor, expected: torch.Tensor) -> float:
    return float((seen - expected).norm() / expected.norm())


@pytest.mark.parametrize("num_rows", [1, 9])
@pytest.mark.parametrize(("bits", "group_size"), [(4, 32), (8, 32), (8, 16)])
def test_groups_stay_as_they_are(bits: int, group_size: int, num_rows: int) -> None:
    weight, bias, x = grouped(48, 128, bits, group_size), random(48), random(num_rows, 128, seed=1)
    layer = factory().make("x", [weight], bias)
    assert layer.path == f"int8-grouped{bits}"
    assert relative_error(layer(x), x @ weight.dequantize().t() + bias) < 0.012


@pytest.mark.parametrize("width", [128, 48])
def test_dense_weights_become_groups_of_8_bits(width: int) -> None:
    weight, x = random(64, width), random(5, width, seed=1)  # rows that fill panels of 16 and of 32
    layer = factory().make("x", [weight], None)
    assert layer.path == "int8-grouped8"
    assert layer.num_bytes < 1.3 * weight.numel()
    assert relative_error(layer(x), x @ weight.t()) < 0.012


def test_quantized_groups_are_as_close_as_8_bits_can_be() -> None:
    weight = random(300, 64)
    weight[7, :32] = 0.0
    weight[8, :32] *= 1e-9  # a scale below what float16 holds
    weight[9, :32] *= 1e9
    groups = int8.quantize(weight)
    error = (groups.dequantize() - weight).unflatten(1, (-1, 32)).abs().amax(dim=2)
    assert groups.group_size == 32
    assert bool((error <= weight.unflatten(1, (-1, 32)).abs().amax(dim=2) / 127 * 0.6).all())


def test_parts_stored_differently_are_computed_side_by_side() -> None:
    parts = [grouped(16, 64), grouped(32, 64, seed=2), grouped(16, 64, bits=8, group_size=16), random(16, 64)]
    layer = factory().make("qkv", parts, None)
    expected = torch.cat([part if isinstance(part, torch.Tensor) else part.dequantize() for part in parts])
    x = random(3, 64, seed=3)
    assert layer.path == "int8-grouped4 | int8-grouped8"
    assert relative_error(layer(x), x @ expected.t()) < 0.012


def test_embedding_rows_are_exact_and_a_tied_head_shares_them() -> None:
    table, made = grouped(64, 64, bits=8), factory()
    embedding = made.embedding(table)
    ids, x = torch.tensor([0, 63, 7]), random(3, 64, seed=4)
    assert torch.equal(embedding(ids), table.dequantize()[ids])
    head = made.head(embedding)
    assert head(x).dtype is torch.float32
    assert relative_error(head(x), x @ table.dequantize().t()) < 0.012
    assert made.num_bytes == embedding.num_bytes == 64 * 64 + 64 * 2 * 2
    assert made.kernel_paths == {"embedding": "grouped8", "head": "int8-grouped8"}


def test_what_cannot_be_cut_into_groups_is_refused_by_name() -> None:
    with pytest.raises(errors.UnsupportedModel, match=r"layer\.3\.down: a matrix of 4 x 40 .* multiple of 16 inputs"):
        factory().make("layer.3.down", [random(4, 40)], None)
    with pytest.raises(errors.UnsupportedModel, match=r"the embedding: a matrix of 4 x 40 .* Choose auto or none"):
        factory().embedding(random(4, 40))
