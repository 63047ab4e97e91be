"""Forms of weights on a device, under Triton's interpreter: what the checkpoint says, whatever it is stored in."""

from __future__ import annotations

from collections.abc import Sequence

import gguf
import made_models
import numpy as np
import pytest
import quick_interpreter
import torch

from tidemark_kernels.device import packed_linear, packed_scales
from tidemark_runtime.model import gguf_decode, gguf_file, linear, tensors
from tidemark_runtime.model.linear_forms import base, device, fp8, int8, rounding

CPU = torch.device("cpu")
GGUF_TYPES = {"Q4_0": "packed4", "Q4_1": "packed4", "Q4_K": "packed4", "Q8_0": "packed8", "Q6_K": "packed8"}
EXACT = 2e-5
"""Of a few rows, whose weights are not rounded, in float32."""


@pytest.fixture(autouse=True)
def _quick_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_interpreter.install(monkeypatch)


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def from_gguf(type_name: str, num_rows: int, width: int, seed: int = 0) -> tensors.Grouped:
    """Blocks of a file, of random bytes, with float16 scales of an ordinary size."""
    blocks = made_models.random_blocks(np.random.default_rng(seed), type_name, num_rows, width)
    info = gguf_file.TensorInfo("x", type_name, (num_rows, width), 0, blocks.nbytes, blocks.reshape(-1))
    found = gguf_decode.decode(info)
    assert isinstance(found, tensors.Grouped)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[type_name])
    assert np.array_equal(found.dequantize().numpy(), expected)
    return found


def from_gptq(num_rows: int, width: int, order: torch.Tensor | None, seed: int = 0) -> tensors.Grouped:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_rows, width // 32)
    return tensors.Grouped(
        quants=torch.randint(0, 16, (num_rows, width), generator=generator).to(torch.uint8),
        scales=(torch.rand(shape, generator=generator) * 0.01 + 0.001).half().float(),
        mins=None,
        bits=4,
        group_size=32,
        zeros=torch.randint(0, 17, shape, generator=generator).float(),
        order=order,
    )


def dense(parts: Sequence[tensors.HostTensor]) -> torch.Tensor:
    return torch.cat([part.dequantize() if isinstance(part, tensors.Grouped) else part.float() for part in parts])


def error(seen: torch.Tensor, expected: torch.Tensor) -> float:
    return float((seen.double() - expected).abs().max() / expected.square().mean().sqrt())


def product(x: torch.Tensor, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None = None) -> torch.Tensor:
    return torch.nn.functional.linear(x.double(), dense(parts).double(), None if bias is None else bias.double())


@pytest.mark.parametrize("type_name", GGUF_TYPES)
def test_every_type_of_gguf_multiplies_as_the_file_says(type_name: str) -> None:
    weight, bias, x = from_gguf(type_name, 40, 256), random(40), random(3, 256, seed=2).bfloat16()
    layer = device.make_device_form([weight], bias, torch.bfloat16, CPU)
    assert layer.path == GGUF_TYPES[type_name]
    assert layer.num_outputs == 40
    assert layer(x).dtype is torch.bfloat16
    assert error(layer(x), product(x, [weight], bias)) < 3e-2


@pytest.mark.parametrize("type_name", GGUF_TYPES)
def test_tables_of_gguf_give_their_exact_rows_and_a_head(type_name: str) -> None:
    table = from_gguf(type_name, 50, 256)
    embedding = device.make_device_embedding(table, torch.float32, CPU)
    head = embedding.as_head()
    x = random(2, 256).bfloat16()
    assert torch.equal(embedding(torch.tensor([0, 49, 7, 7])), table.dequantize()[[0, 49, 7, 7]])
    assert head(x).dtype is torch.float32
    assert error(head(x), product(x, [table])) < EXACT
    assert (head.num_bytes, head.num_outputs) == (0, 50)


@pytest.mark.parametrize("type_name", ["Q4_K", "Q6_K"])
def test_scales_that_are_products_are_kept_as_such(type_name: str) -> None:
    """The float32 scales of one checkpoint matrix show what the file's bytes were; NaN or zero scales included."""
    found = from_gguf(type_name, 64, 512, seed=3)
    packed = packed_scales.pack(
        found.scales, found.mins, None, found.bits == 4, found.group_size, 512 // found.group_size, 64
    )
    assert packed.kind == packed_scales.SUPER
    scales, beside = packed.unpacked()
    assert torch.equal(scales.t(), found.scales)
    if found.mins is not None:
        assert torch.equal(beside.t(), found.mins)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dense_matrices(dtype: torch.dtype) -> None:
    parts, bias, x = [random(8, 24), random(6, 24, seed=2).bfloat16()], random(14), random(3, 24, seed=3).to(dtype)
    layer = device.make_device_form(parts, bias, dtype, CPU)
    assert (layer.path, layer.num_outputs) == (str(dtype).removeprefix("torch."), 14)
    assert layer.num_bytes == (14 * 24 + 14) * dtype.itemsize
    expected = torch.nn.functional.linear(x, torch.cat([part.to(dtype) for part in parts]), bias.to(dtype))
    assert torch.equal(layer(x), expected)


def test_dense_tables_and_their_heads() -> None:
    table, x = random(30, 16).half(), random(3, 16).bfloat16()
    embedding = device.make_device_embedding(table, torch.bfloat16, CPU)
    assert embedding(torch.tensor([29, 0])).dtype is torch.bfloat16
    assert torch.equal(embedding(torch.tensor([29, 0])), table.bfloat16()[[29, 0]])
    tied, own = embedding.as_head(), device.make_device_head(table, torch.bfloat16, CPU)
    assert tied(x).dtype is torch.float32
    assert torch.equal(tied(x), own(x))
    assert (embedding.num_bytes, tied.num_bytes, own.num_bytes) == (30 * 16 * 2, 0, 30 * 16 * 2)


def test_a_tensor_that_is_on_the_device_is_not_copied() -> None:
    weight = random(8, 4)
    layer = device.make_device_form([weight], None, torch.float32, CPU)
    x = random(1, 4)
    before = layer(x)
    weight.zero_()
    assert bool(before.any())
    assert not layer(x).any()


def test_act_order_reads_the_inputs_in_the_order_of_the_groups() -> None:
    order = torch.randperm(96, generator=torch.Generator().manual_seed(4)).int()
    parts = [from_gptq(24, 96, order), from_gptq(16, 96, order.clone(), seed=1)]
    layer = device.make_device_form(parts, None, torch.float16, CPU)
    x = random(2, 96).half()
    assert layer.path == "packed4-reordered"
    assert error(layer(x), product(x, parts)) < 4e-3


def test_parts_with_and_without_mins_become_one_matrix() -> None:
    parts = [from_gguf("Q4_K", 16, 256), from_gguf("Q4_0", 24, 256)]
    layer = device.make_device_form(parts, random(40), torch.float32, CPU)
    x = random(3, 256)
    assert error(layer(x), product(x, parts, random(40))) < EXACT


def test_an_own_packed_head_gives_float32() -> None:
    matrix = from_gguf("Q8_0", 33, 64)
    head = device.make_device_head(matrix, torch.bfloat16, CPU)
    x = random(2, 64).bfloat16()
    assert head(x).dtype is torch.float32
    assert head.num_bytes > 0
    assert error(head(x), product(x, [matrix])) < EXACT


@pytest.mark.parametrize("quantization", sorted(rounding.WEIGHT_ONLY))
def test_weights_that_a_policy_rounds(quantization: str) -> None:
    weight = random(40, 64)
    groups = rounding.rounded("x", weight, quantization)
    layer = device.make_device_form([groups], None, torch.bfloat16, CPU)
    x = random(3, 64, seed=2).bfloat16()
    assert layer.path == {"int8_weight_only": "packed8", "fp8_weight_only": "packed-e4m3"}[quantization]
    assert error(layer(x), product(x, [groups])) < 3e-2
    assert error(layer(x), product(x, [weight])) < 0.2


@pytest.mark.parametrize("make", [int8.quantize, fp8.quantize])
def test_the_two_forms_of_one_matrix_agree(make: object) -> None:
    """The processor's kernel and the device's: float32 sums of the same exact weights."""
    assert callable(make)
    groups = make(random(48, 96))
    x = random(5, 96, seed=2)
    on_processor = linear.make_form(linear.Form.GROUPED, [groups], None, torch.float32)
    on_device = device.make_device_form([groups], None, torch.float32, CPU)
    assert error(on_device(x), on_processor(x).double()) < EXACT


@pytest.mark.parametrize(
    "parts",
    [
        [random(8, 64), int8.quantize(random(8, 64))],
        [int8.quantize(random(8, 64)), fp8.quantize(random(8, 64))],
        [int8.quantize(random(8, 64)), int8.quantize(random(8, 32))],
        [from_gptq(8, 64, None), from_gptq(8, 64, torch.arange(63, -1, -1).int())],
    ],
    ids=["dense and groups", "two dtypes", "two widths", "two orders"],
)
def test_parts_that_are_no_one_matrix_are_refused(parts: list[tensors.HostTensor]) -> None:
    with pytest.raises(
        ValueError, match=r"parts are \d dense and \d of groups .*, expected all dense, or all of one kind"
    ):
        device.make_device_form(parts, None, torch.bfloat16, CPU)


def test_the_forms_are_what_the_model_asks_for() -> None:
    """Checked by the types; here, that no step allocates twice: a product writes where it is told."""
    made: base.Linear = device.make_device_form([from_gguf("Q4_0", 16, 32)], None, torch.float16, CPU)
    table: base.Embedding = device.make_device_embedding(from_gguf("Q4_0", 16, 32), torch.float16, CPU)
    assert made(random(0, 32).half()).shape == (0, 16)
    assert table(torch.zeros(0, dtype=torch.int64)).shape == (0, 32)
    assert packed_linear.workspace_floats(0, device._packed([from_gguf("Q4_0", 16, 32)], CPU)[0]) == 0
