from __future__ import annotations

import struct
from pathlib import Path

import gguf
import made_models
import numpy as np
import pytest

from tidemark_runtime import errors
from tidemark_runtime.model import gguf_file


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    fields = {
        **made_models.LLAMA_FIELDS,
        "a.flag": True,
        "a.text": "grüße 北京",
        "a.words": ["one", "", "three"],
        "a.numbers": [1, 2, 3],
        "a.floats": [0.5, 1.5],
    }
    tensors = {
        "token_embd.weight": ("Q8_0", made_models.random_blocks(rng, "Q8_0", 5, 64)),
        "output_norm.weight": rng.standard_normal(64).astype(np.float32),
        "blk.0.ffn_up.weight": rng.standard_normal((3, 64)).astype(np.float16),
    }
    return made_models.write_gguf(tmp_path / "tiny.gguf", made_models.GGUFContent("llama", fields, tensors))


def test_metadata_and_tensors_equal_what_the_gguf_package_reads(tiny: Path) -> None:
    found, reference = gguf_file.read(tiny), gguf.GGUFReader(tiny)
    for key, field in reference.fields.items():
        if not key.startswith("GGUF."):
            assert found.metadata[key] == field.contents(), key
    assert found.metadata["llama.a.text"] == "grüße 北京"
    assert found.metadata["llama.a.words"] == ["one", "", "three"]
    assert found.metadata["llama.a.flag"] is True
    for tensor in reference.tensors:
        info = found.tensors[tensor.name]
        assert info.type_name == tensor.tensor_type.name
        assert info.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert info.data.tobytes() == tensor.data.tobytes()
        assert (info.offset, info.num_bytes) == (tensor.data_offset, tensor.n_bytes)


def test_every_truncation_is_corrupt(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    used = max(info.offset + info.num_bytes for info in gguf_file.read(tiny).tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in (*range(40), *range(40, used, 7), used - 1):
        if length < used:
            cut.write_bytes(whole[:length])
            with pytest.raises(errors.CorruptModel, match=r"cut\.gguf"):
                gguf_file.read(cut)


def test_a_changed_byte_is_never_another_exception(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    header_end = min(info.offset for info in gguf_file.read(tiny).tensors.values())
    changed = tmp_path / "changed.gguf"
    num_refused = 0
    for at in range(header_end):
        changed.write_bytes(whole[:at] + bytes([(0x00, 0x7F, 0xFF)[at % 3]]) + whole[at + 1 :])
        try:
            gguf_file.read(changed)
        except (errors.CorruptModel, errors.UnsupportedModel):
            num_refused += 1
    assert num_refused > 200


def test_a_file_cut_inside_the_last_tensor_names_it_and_both_lengths(tiny: Path) -> None:
    whole = tiny.read_bytes()
    infos = gguf_file.read(tiny).tensors.values()
    last = max(infos, key=lambda info: info.offset)
    end = last.offset + last.num_bytes
    tiny.write_bytes(whole[: end - 1])
    with pytest.raises(errors.CorruptModel, match=rf"has {end - 1} bytes.*{last.name} ends at byte {end}"):
        gguf_file.read(tiny)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", errors.CorruptModel, "empty"),
        (b"PK\x03\x04 a zip file", errors.CorruptModel, r"begins with b'PK"),
        (b"GGUF" + struct.pack("<I", 1), errors.UnsupportedModel, "GGUF version 1 is not supported"),
        (b"GGUF" + struct.pack(">I", 3), errors.UnsupportedModel, "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), errors.CorruptModel, "more than the file can hold"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), errors.CorruptModel, "more than the file can hold"),
    ],
)
def test_a_wrong_header_says_what_is_wrong(
    tmp_path: Path, content: bytes, error: type[errors.ModelError], message: str
) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(error, match=message):
        gguf_file.read(path)


def test_an_unsupported_tensor_type_names_tensor_type_and_what_is_supported(tmp_path: Path) -> None:
    rows = np.zeros((2, 22), dtype=np.uint8)
    content = made_models.GGUFContent("llama", {}, {"blk.0.ffn_up.weight": ("Q5_0", rows)})
    path = made_models.write_gguf(tmp_path / "q5.gguf", content)
    with pytest.raises(errors.UnsupportedModel, match=r"ffn_up\.weight has the type Q5_0.*Supported: BF16, F16"):
        gguf_file.read(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match=r"gone\.gguf"):
        gguf_file.read(tmp_path / "gone.gguf")
