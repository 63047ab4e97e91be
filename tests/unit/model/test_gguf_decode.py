from __future__ import annotations

import gguf
import made_models
import numpy as np
import pytest
import torch

from tidemark_runtime.model import gguf_decode, gguf_file, tensors

QUANTIZED = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K")


def info_of(type_name: str, rows: np.ndarray, width: int) -> gguf_file.TensorInfo:
    return gguf_file.TensorInfo("x", type_name, (rows.shape[0], width), 0, rows.nbytes, rows.reshape(-1))


@pytest.mark.parametrize("type_name", QUANTIZED)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 256), (7, 768), (300, 256)])
def test_groups_are_exactly_what_ggml_dequantizes(type_name: str, num_rows: int, width: int) -> None:
    rows = made_models.random_blocks(np.random.default_rng(num_rows), type_name, num_rows, width)
    found = gguf_decode.decode(info_of(type_name, rows, width))
    assert isinstance(found, tensors.Grouped)
    expected = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[type_name])
    assert np.array_equal(found.dequantize().numpy(), expected)
    assert found.shape == (num_rows, width)
    assert found.quants.dtype == (torch.uint8 if found.bits == 4 else torch.int8)
    if found.bits == 4:
        assert int(found.quants.max()) <= 15


@pytest.mark.parametrize("type_name", QUANTIZED)
def test_a_tensor_decoded_in_pieces_is_the_same(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made_models.random_blocks(np.random.default_rng(3), type_name, 11, 256)
    whole = gguf_decode.decode(info_of(type_name, rows, 256))
    monkeypatch.setattr(gguf_decode, "_ELEMENTS_AT_A_TIME", 3 * 256)
    pieces = gguf_decode.decode(info_of(type_name, rows, 256))
    assert isinstance(whole, tensors.Grouped)
    assert isinstance(pieces, tensors.Grouped)
    assert torch.equal(whole.dequantize(), pieces.dequantize())


@pytest.mark.parametrize(
    ("type_name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_dense_types_are_views_of_the_file(type_name: str, dtype: torch.dtype) -> None:
    values = torch.randn(5, 48).to(dtype)
    data = values.view(torch.uint8).reshape(-1).numpy().copy()
    found = gguf_decode.decode(gguf_file.TensorInfo("x", type_name, (5, 48), 0, data.nbytes, data))
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, values)
    assert found.data_ptr() == data.ctypes.data


def test_each_type_the_reader_accepts_can_be_decoded() -> None:
    decodable = {*gguf_decode._DENSE, *gguf_decode._GROUPED}
    assert decodable == {kind.name for kind in gguf_file.TENSOR_TYPES.values()}
