"""Parts of matrices: put together they are the whole, however a checkpoint stores them, and none is cut wrongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import made_models
import made_steps
import numpy as np
import packed_checkpoints
import pytest
import torch

from tidemark_runtime import errors
from tidemark_runtime.model import (
    checkpoint,
    linear,
    loading,
    packed_groups,
    packing,
    parallel,
    sharded_checkpoint,
    sources,
    tensors,
)

CONFIG: dict[str, Any] = {
    **made_models.LLAMA_CONFIG,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 49,
}
BY_INPUTS = ("o_proj", "down_proj")
WHOLE = ("norm", "layernorm")


def opened(folder: Path) -> checkpoint.Checkpoint:
    return checkpoint.open_checkpoint(sources.resolve(str(folder), folder))


def shards(size: int) -> list[parallel.Shard]:
    return [parallel.Shard(rank, size) for rank in range(size)]


def dense(found: tensors.HostTensor) -> torch.Tensor:
    return found.float() if isinstance(found, torch.Tensor) else found.dequantize()


def written(folder: Path, storage: str) -> Path:
    """A model in one of the storages there are."""
    weights = made_models.llama_weights(CONFIG)
    if storage in ("float32", "bfloat16", "float16"):
        return made_models.write_folder(
            folder, CONFIG, {name: tensor.to(getattr(torch, storage)) for name, tensor in weights.items()}
        )
    how = {
        "awq": packed_checkpoints.Format(method="awq", group_size=32),
        "gptq": packed_checkpoints.Format(method="gptq", group_size=16),
        "gptq 8 bits": packed_checkpoints.Format(method="gptq", bits=8, group_size=32),
        "gptq whole rows": packed_checkpoints.Format(method="gptq", group_size=-1),
    }[storage]
    packed, _ = packed_checkpoints.pack({name: each.half() for name, each in weights.items()}, how)
    return made_models.write_folder(folder, {**CONFIG, "quantization_config": how.config}, packed)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("storage", ["float32", "bfloat16", "float16", "awq", "gptq", "gptq 8 bits", "gptq whole rows"])
def test_the_parts_of_every_matrix_are_the_whole(tmp_path: Path, storage: str, size: int) -> None:
    check_parts(opened(written(tmp_path / "model", storage)), size)


def check_parts(whole: checkpoint.Checkpoint, size: int) -> None:
    ranks = [sharded_checkpoint.ShardedCheckpoint(whole, shard) for shard in shards(size)]
    assert {len(rank.names()) for rank in ranks} == {len(whole.names())}
    for name in sorted(whole.names()):
        want, parts = dense(whole.tensor(name)), [dense(rank.tensor(name)) for rank in ranks]
        if any(word in name for word in WHOLE):
            assert all(torch.equal(part, want) for part in parts)
            continue
        if size == 4 and ("k_proj" in name or "v_proj" in name):  # two KV heads: each on two ranks
            assert torch.equal(parts[0], parts[1])
            assert torch.equal(parts[2], parts[3])
            parts = [parts[0], parts[2]]
        dim = 1 if any(word in name for word in BY_INPUTS) else 0
        assert torch.equal(torch.cat(parts, dim), want), name
        assert size == 1 or "k_proj" in name or all(part.shape[dim] < want.shape[dim] for part in parts)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0"])
def test_the_parts_of_a_gguf_are_the_whole(tmp_path: Path, kind: str) -> None:
    """Rows of Q and K are put in another order while they are read, head by head."""
    config = {**CONFIG, "hidden_size": 256}
    rng = np.random.default_rng(5)
    stored: dict[str, Any] = {}
    for name, tensor in made_models.llama_weights(config).items():
        is_vector = tensor.dim() == 1
        stored[made_models.gguf_name(name)] = (
            tensor.numpy() if is_vector else (kind, made_models.random_blocks(rng, kind, *tensor.shape))
        )
    fields = {**made_models.LLAMA_FIELDS, "embedding_length": 256, "feed_forward_length": 256}
    fields |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    file = made_models.write_gguf(tmp_path / "made.gguf", made_models.GGUFContent("llama", fields, stored))
    check_parts(opened(file), 2)


def test_biases_go_with_their_outputs(tmp_path: Path) -> None:
    weights = made_models.llama_weights(CONFIG)
    for part, width in (("q", 64), ("k", 32), ("v", 32)):
        weights[f"model.layers.0.self_attn.{part}_proj.bias"] = torch.randn(width)
    config = {**CONFIG, "model_type": "qwen2"}
    whole = opened(made_models.write_folder(tmp_path / "model", config, weights))
    ranks = [sharded_checkpoint.ShardedCheckpoint(whole, shard) for shard in shards(2)]
    name = "model.layers.0.self_attn.q_proj.bias"
    found = [dense(rank.tensor(name)) for rank in ranks]
    assert torch.equal(torch.cat(found), weights[name])


def test_e4m3_rows_keep_their_scale_where_inputs_are_divided() -> None:
    codes = (torch.randn(6, 64) * 40).to(torch.float8_e4m3fn)
    whole = tensors.Grouped(codes, torch.rand(6, 1), None, bits=8, group_size=64)
    parts = [cut(whole, range(start, start + 32)) for start in (0, 32)]
    assert {part.group_size for part in parts} == {32}
    assert torch.equal(torch.cat([part.dequantize() for part in parts], 1), whole.dequantize())


def cut(found: tensors.Grouped, own: range) -> tensors.Grouped:
    made = sharded_checkpoint.cut_out(
        "o_proj.weight", found, sharded_checkpoint.Cut(1, own, found.shape[1]), found.shape[1] // len(own)
    )
    assert isinstance(made, tensors.Grouped)
    return made


def test_a_group_is_never_cut() -> None:
    whole = tensors.Grouped(torch.zeros(4, 96, dtype=torch.uint8), torch.ones(4, 3), None, bits=4, group_size=32)
    with pytest.raises(
        errors.UnsupportedModel,
        match=r"o_proj.weight: 96 inputs in groups of 32 cannot be divided among 2 ranks: 48 inputs each.*3 groups",
    ):
        cut(whole, range(48))


def test_act_order_is_refused_by_inputs_and_kept_by_outputs() -> None:
    order = torch.randperm(64).int()
    whole = tensors.Grouped(
        torch.randint(0, 16, (8, 64), dtype=torch.uint8), torch.rand(8, 2), None, bits=4, group_size=32, order=order
    )
    with pytest.raises(errors.UnsupportedModel, match=r"o_proj.weight: GPTQ's act-order.*without desc_act"):
        cut(whole, range(32))
    rows = sharded_checkpoint.cut_out("q_proj.weight", whole, sharded_checkpoint.Cut(0, range(4, 8), 8), 2)
    assert torch.equal(dense(rows), whole.dequantize()[4:])


def test_a_tensor_that_is_too_large_is_not_cut_to_size(tmp_path: Path) -> None:
    weights = made_models.llama_weights(CONFIG)
    weights["model.layers.0.mlp.up_proj.weight"] = torch.zeros(200, 64)
    whole = opened(made_models.write_folder(tmp_path / "model", CONFIG, weights))
    rank = sharded_checkpoint.ShardedCheckpoint(whole, parallel.Shard(0, 2))
    with pytest.raises(errors.CorruptModel, match=r"up_proj.weight has the shape \[200, 64\], expected 256"):
        rank.tensor("model.layers.0.mlp.up_proj.weight")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_every_token_and_every_head_is_somebodys(size: int) -> None:
    tokens = [token for shard in shards(size) for token in shard.tokens(49)]
    assert tokens == list(range(49))
    counts = [len(shard.tokens(49)) for shard in shards(size)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "size"), [(4, 2, 2), (8, 2, 4), (8, 1, 8), (6, 3, 3), (4, 4, 2)])
def test_a_rank_has_the_kv_heads_that_its_queries_read(num_heads: int, num_kv_heads: int, size: int) -> None:
    shared = num_heads // num_kv_heads
    for shard in shards(size):
        wanted = sorted({head // shared for head in shard.part(num_heads)})
        assert list(shard.kv_heads(num_kv_heads)) == wanted


class OneAfterTheOther:
    """`parallel.Group` of ranks that are run in turn: it is told what the others will say by an earlier round."""

    def __init__(self, shard: parallel.Shard, said: Sequence[list[torch.Tensor]]) -> None:
        self.shard = shard
        self._said = said
        self._calls = 0

    def _all(self, x: torch.Tensor) -> list[torch.Tensor]:
        """What each rank says at this call, as far as that is known; its own is added."""
        call, self._calls = self._calls, self._calls + 1
        mine = self._said[self.shard.rank]
        mine[call:] = [x.clone()]
        return [each[call] if call < len(each) else torch.zeros_like(x) for each in self._said]

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.stack(self._all(x)).sum(0))

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._all(x), dim=1)

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self._all(x)[0])


@pytest.mark.parametrize(
    ("changes", "size"),
    [({}, 1), ({}, 2), ({}, 4), ({"tie_word_embeddings": True}, 2), ({"num_key_value_heads": 4}, 4)],
    ids=str,
)
def test_ranks_compute_what_one_computes(tmp_path: Path, changes: dict[str, Any], size: int) -> None:
    """Each sum is right once all terms before it are: so many rounds, in turn, as there are sums."""
    config = {**CONFIG, **changes}
    folder = made_models.write_folder(tmp_path / "model", config, made_models.llama_weights(config))
    whole = made_steps.load(folder)
    batch = made_steps.batch_of([made_steps.Chunk([2, 0], [7, 1, 48, 3, 20]), made_steps.Chunk([1], [24, 25, 0])])
    want = whole.forward(batch, made_steps.new_memory(whole, 4))
    said: list[list[torch.Tensor]] = [[] for _ in range(size)]
    have = torch.empty(0)
    num_calls = 4  # the embedding, o_proj, down_proj, the logits
    for _ in range(num_calls):
        for shard in reversed(shards(size)):
            group = OneAfterTheOther(shard, said)
            part = sharded_checkpoint.ShardedCheckpoint(opened(folder), shard)
            model = loading.load(part, made_steps.plain_factory(), lambda *_: None, group=group)
            have = model.forward(batch, made_steps.new_memory(model, 4))
    assert {len(each) for each in said} == ({0} if size == 1 else {num_calls})
    assert have.shape == want.shape
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


def test_one_rank_pays_nothing(tmp_path: Path) -> None:
    factory = linear.LinearFactory(linear.LinearPolicy(torch.float32))
    layer = factory.make("a", [torch.randn(4, 8)], None)
    table = factory.embedding(torch.randn(4, 8))
    assert parallel.summed(layer, parallel.ALONE) is layer
    assert parallel.embedding(table, 4, parallel.ALONE) is table
    assert parallel.head(layer, 4, parallel.ALONE) is layer


def test_the_spec_of_a_rank_is_of_its_heads(tmp_path: Path) -> None:
    whole = opened(made_models.write_folder(tmp_path / "model", CONFIG, made_models.llama_weights(CONFIG))).spec
    own = sharded_checkpoint.own_spec(whole, parallel.Shard(1, 2))
    changed = {"num_heads": 2, "num_kv_heads": 1, "intermediate_size": 128}
    assert own == dataclasses.replace(whole, **changed)


@pytest.mark.parametrize("storage", ["awq", "gptq", "gptq 8 bits", "gptq whole rows"])
def test_nothing_but_the_part_of_a_packed_matrix_is_unpacked(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rank needs for loading is then a part, too."""
    decode, read = packed_groups.decode, []

    def watched(name: str, parts: Mapping[str, torch.Tensor], how: packing.Packing) -> tensors.Grouped:
        read.append(parts["qweight"].numel())
        return decode(name, parts, how)

    monkeypatch.setattr(packed_groups, "decode", watched)
    whole = opened(written(tmp_path / "model", storage))
    rank = sharded_checkpoint.ShardedCheckpoint(whole, parallel.Shard(1, 2))
    names = [name for name in sorted(whole.names()) if name.endswith("_proj.weight")]
    for name in names:
        whole.tensor(name)
        rank.tensor(name)
    assert len(read) == 2 * len(names) > 0
    assert all(part == all_of_it // 2 for all_of_it, part in zip(read[::2], read[1::2], strict=True))
