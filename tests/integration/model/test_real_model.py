"""The real small model: read fast, and its logits close to those of transformers in float32."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_steps
import pytest
import torch
from made_steps import Chunk

from tidemark_runtime import errors, model_store
from tidemark_runtime.model import batch, checkpoint, gguf_file, linear, loading, sources

PROMPTS = (
    [1, 4093, 198, 3855, 314, 260, 3575, 282, 4649, 47],
    [504, 3575, 282, 4649, 314],
    list(range(100, 400, 3)),
)
GROUPS = linear.LinearPolicy(
    torch.float32,
    {
        linear.Storage.GROUPED4: linear.FormsByRows.always(linear.Form.GROUPED),
        linear.Storage.GROUPED8: linear.FormsByRows.always(linear.Form.GROUPED),
    },
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine threads that wait for each other are many times slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(path: Path, policy: linear.LinearPolicy) -> batch.Model:
    opened = checkpoint.open_checkpoint(sources.resolve(str(path), path.parent))
    return loading.load(opened, linear.LinearFactory(policy), lambda _what, _share: None)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", [linear.LinearPolicy(torch.float32), GROUPS], ids=["expanded", "groups"])
def test_logits_equal_transformers(smollm2_path: Path, reference: Any, policy: linear.LinearPolicy) -> None:
    ours = load(smollm2_path, policy)
    pages = ([0, 2, 4], [1], [3, 5, 6, 7, 8, 9, 10])
    chunks = [Chunk(some, prompt) for some, prompt in zip(pages, PROMPTS, strict=True)]
    found = ours.forward(made_steps.batch_of(chunks, block_size=16), made_steps.new_memory(ours, 11, block_size=16))
    for prompt, logits in zip(PROMPTS, found.split([len(prompt) for prompt in PROMPTS]), strict=True):
        with torch.inference_mode():
            wanted = reference(torch.tensor([prompt])).logits[0]
        torch.testing.assert_close(logits, wanted, rtol=0, atol=2e-3)
        assert torch.equal(logits.argmax(-1), wanted.argmax(-1))


def test_the_header_is_read_with_few_calls_for_each_of_its_many_texts(smollm2_path: Path) -> None:
    """A hundred thousand of them: well under a second."""
    profile = cProfile.Profile()
    found = profile.runcall(gguf_file.read, smollm2_path)
    tokens, merges = (found.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    assert len(tokens) == 49_152
    assert pstats.Stats(profile).total_calls < 4 * (len(tokens) + len(merges))


def test_the_fetched_model_is_as_published(smollm2_path: Path) -> None:
    assert model_store.verify(smollm2_path.stem, store=smollm2_path.parent) == smollm2_path


def test_the_real_file_cut_at_any_tensor_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    """A sparse copy: header and length as cut, no weights."""
    infos = sorted(gguf_file.read(smollm2_path).tensors.values(), key=lambda info: info.offset)
    with smollm2_path.open("rb") as file:
        header = file.read(infos[0].offset)
    cut = tmp_path / "cut.gguf"
    for info in infos[:: len(infos) // 8]:
        cut.write_bytes(header)
        with cut.open("r+b") as file:
            file.truncate(info.offset + info.num_bytes - 1)
        with pytest.raises(errors.CorruptModel, match="cut off"):
            gguf_file.read(cut)
