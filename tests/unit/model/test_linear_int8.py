"""8-bit weights and activations: exact integer sums at the extremes, and small errors on ordinary numbers."""

from __future__ import annotations

import pytest
import torch

from tidemark_runtime.model.linear_forms import int8


def safe_bits() -> int:
    return 7 if int8.saturates() else 8


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("num_rows", [1, 5, 64])
def test_sums_of_the_largest_numbers_are_exact(num_rows: int, sign: int) -> None:
    """A kernel that adds pairs of products in 16 bits would lose half of these."""
    width, num_outputs = 576, 48
    layer = int8.Int8Linear(
        torch.full((num_outputs, width), 127 * sign, dtype=torch.int8), torch.ones(num_outputs), None
    )
    seen = layer(torch.ones(num_rows, width))
    assert torch.allclose(seen, torch.full((num_rows, num_outputs), float(127 * sign * width)))


@pytest.mark.parametrize("num_rows", [1, 3, 40])
def test_the_product_is_that_of_the_integers(num_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = safe_bits()
    limit = (1 << (bits - 1)) - 1
    quants = torch.randint(-127, 128, (32, 160), dtype=torch.int8, generator=generator)
    codes = torch.randint(-limit, limit + 1, (num_rows, 160), generator=generator)
    codes[:, 0] = limit  # the largest of a row is its scale, so that codes / limit gives the codes back
    scales = torch.rand(32, generator=generator) + 0.5
    bias = torch.randn(32, generator=generator)
    seen = int8.Int8Linear(quants, scales, bias)(codes.float())
    expected = (codes @ quants.long().t()).double() * scales.double() + bias.double()
    assert torch.allclose(seen.double(), expected, rtol=1e-5, atol=1e-3)


def test_the_path_says_how_many_bits_activations_have() -> None:
    layer = int8.Int8Linear(torch.ones(4, 8, dtype=torch.int8), torch.ones(4), None)
    assert layer.path == f"int8-onednn-a{safe_bits()}"


@pytest.mark.parametrize("bits", sorted({7, safe_bits()}))
def test_ordinary_numbers_come_out_close(bits: int) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(64, 256, generator=generator)
    x = torch.randn(9, 256, generator=generator)
    seen = int8.Int8Linear(*int8.quantize_rows(weight), None, activation_bits=bits)(x)
    expected = x @ weight.t()
    relative = (seen - expected).norm() / expected.norm()
    assert relative < (0.02 if bits == 7 else 0.012)


def test_rows_of_zeros_give_zeros() -> None:
    quants, scales = int8.quantize_rows(torch.zeros(4, 8))
    assert torch.equal(int8.Int8Linear(quants, scales, None)(torch.zeros(2, 8)), torch.zeros(2, 4))


def test_embedding_and_head_hold_the_same_numbers() -> None:
    table = torch.randn(40, 32, generator=torch.Generator().manual_seed(2))
    embedding = int8.Int8Embedding(table, torch.float32)
    rows = embedding(torch.arange(40))
    assert (rows - table).abs().max() <= table.abs().max() / 127
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(embedding.as_head()(x), x @ rows.t(), atol=0.3)
