"""Each architecture against transformers, on tiny made models: logits within 1e-4 in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import made_models
import made_steps
import numpy as np
import pytest
import torch
import transformers
from made_steps import BLOCK_SIZE, Chunk

from tidemark_runtime.model import batch, linear

TOLERANCE = 1e-4
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 101,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
QWEN2_MIXED = ["full_attention", "sliding_attention", "full_attention"]

CONFIGS: dict[str, tuple[type[transformers.PreTrainedConfig], dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, {}),
    "llama, tied, one KV head": (transformers.LlamaConfig, {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama, own head_dim": (transformers.LlamaConfig, {"head_dim": 24}),
    "llama, llama3 rope": (transformers.LlamaConfig, {"rope_parameters": LLAMA3}),
    "llama, linear rope": (transformers.LlamaConfig, {"rope_parameters": LINEAR}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
    "mistral, window shorter than the prompt": (transformers.MistralConfig, {"sliding_window": 9}),
    "mistral, window of one page": (transformers.MistralConfig, {"sliding_window": BLOCK_SIZE}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen2, tied": (transformers.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2, window from a layer on": (transformers.Qwen2Config, SLIDING),
    "qwen2, window in some layers": (transformers.Qwen2Config, {**SLIDING, "layer_types": QWEN2_MIXED}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 32}),
    "qwen3, tied": (transformers.Qwen3Config, {"head_dim": 16, "tie_word_embeddings": True}),
}


def made(name: str, **more: Any) -> transformers.PreTrainedModel:
    """A random model whose norms and biases are random too, so that leaving one out is seen."""
    kind, changes = CONFIGS[name]
    config = kind(**{**SIZES, **changes, **more}, attn_implementation="eager")
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                centre = 0.0 if parameter_name.endswith("bias") else 1.0
                parameter.copy_(centre + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These matrices are too small to share, and threads that wait for each other are slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, batch.Model]:
    """(transformers model, our model of the folder it saved)."""
    theirs = made(request.param)
    folder = tmp_path_factory.mktemp("made")
    theirs.save_pretrained(folder)
    return theirs, made_steps.load(folder)


def tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, SIZES["vocab_size"], (count,), generator=generator).tolist()


def expected(model: Any, token_ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids]), use_cache=False).logits[0]
    return logits


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert wanted.abs().max() > 0.5, "logits too small for the comparison to mean anything"
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)


def test_a_whole_prompt(pair: tuple[Any, batch.Model]) -> None:
    theirs, ours = pair
    prompt = tokens(30)
    memory = made_steps.new_memory(ours, 9)
    found = ours.forward(made_steps.batch_of([Chunk([8, 1, 7, 2, 6, 3, 5, 4], prompt)]), memory)
    assert_close(found, expected(theirs, prompt))


@pytest.mark.parametrize("sizes", [(1,) * 22, (5, 4, 13), (3, 16, 2, 1)], ids=str)
def test_a_prompt_in_chunks_and_token_by_token(pair: tuple[Any, batch.Model], sizes: tuple[int, ...]) -> None:
    theirs, ours = pair
    prompt = tokens(22, seed=1)
    memory = made_steps.new_memory(ours, 7)
    found, start = [], 0
    for size in sizes:
        chunk = Chunk([3, 0, 6, 1, 5, 2], prompt[start : start + size], start)
        found.append(ours.forward(made_steps.batch_of([chunk]), memory))
        start += size
    assert_close(torch.cat(found), expected(theirs, prompt))


def test_sequences_side_by_side(pair: tuple[Any, batch.Model]) -> None:
    """One decodes while another's prompt comes in, and a third comes in whole."""
    theirs, ours = pair
    first, second, third = tokens(15, seed=2), tokens(21, seed=3), tokens(2, seed=4)
    pages = ([0, 4, 8, 12], [1, 5, 9, 13, 14, 15], [2])
    memory = made_steps.new_memory(ours, 16)
    steps = (
        [Chunk(pages[0], first[:14]), Chunk(pages[1], second[:6])],
        [Chunk(pages[1], second[6:19], 6), Chunk(pages[0], first[14:], 14), Chunk(pages[2], third)],
        [Chunk(pages[1], second[19:], 19)],
    )
    logits = [ours.forward(made_steps.batch_of(chunks), memory) for chunks in steps]
    assert_close(torch.cat([logits[0][:14], logits[1][13:14]]), expected(theirs, first))
    assert_close(torch.cat([logits[0][14:], logits[1][:13], logits[2]]), expected(theirs, second))
    assert_close(logits[1][14:], expected(theirs, third))


def test_only_the_wanted_rows_come_back(pair: tuple[Any, batch.Model]) -> None:
    _, ours = pair
    whole = made_steps.batch_of([Chunk([0, 1, 2], tokens(10))])
    every = ours.forward(whole, made_steps.new_memory(ours, 3))
    some = ours.forward(made_steps.sampling(whole, [9, 4]), made_steps.new_memory(ours, 3))
    none = ours.forward(made_steps.sampling(whole, []), made_steps.new_memory(ours, 3))
    torch.testing.assert_close(some, every[[9, 4]], rtol=0, atol=1e-5)
    assert none.shape == (0, SIZES["vocab_size"])


# ------------------------------------------------------------------------------------------- the same models as GGUF

GROUPS = linear.LinearPolicy(
    torch.float32,
    {
        linear.Storage.GROUPED4: linear.FormsByRows.always(linear.Form.GROUPED),
        linear.Storage.GROUPED8: linear.FormsByRows.always(linear.Form.GROUPED),
    },
)


def write_gguf(path: Path, model: Any, type_name: str) -> None:
    """`model` as llama.cpp's converter would write it; its matrices are replaced by what the quantized blocks hold."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    architecture = "llama" if config.model_type == "mistral" else config.model_type
    fields = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "rope.dimension_count": head_dim,
    }
    rng = np.random.default_rng(5)
    packed: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2], 0)
        array = parameter.detach().numpy()
        if parameter.dim() == 2 and type_name != "F32":
            rows = made_models.random_blocks(rng, type_name, *array.shape)
            array = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[type_name]).astype(np.float32)
            if architecture == "llama" and heads:
                array = unpermuted(array, heads)
            parameter.data.copy_(torch.from_numpy(array))
            packed[made_models.gguf_name(name)] = (type_name, rows)
        else:
            if architecture == "llama" and heads:
                array = made_models.permuted(array, heads)
            packed[made_models.gguf_name(name)] = array
    made_models.write_gguf(path, made_models.GGUFContent(architecture, fields, packed))


def unpermuted(rows: Any, num_heads: int) -> Any:
    order = np.argsort(made_models.permuted(np.arange(rows.shape[0]), num_heads))
    return rows[order]


@pytest.mark.parametrize("policy", [linear.LinearPolicy(torch.float32), GROUPS], ids=["expanded", "groups"])
@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        ("llama", "F32"),
        ("llama, tied, one KV head", "F32"),
        ("mistral", "F32"),
        ("qwen2", "F32"),
        ("qwen3", "F32"),
        *(("llama", type_name) for type_name in ("Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")),
        ("qwen2", "Q4_1"),
        ("qwen3, tied", "Q8_0"),
    ],
)
def test_a_gguf_computes_what_the_dequantized_weights_compute(
    name: str, type_name: str, policy: linear.LinearPolicy, tmp_path: Path
) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 256} if type_name.endswith("K") else {}
    theirs = made(name, **wide)
    write_gguf(tmp_path / "made.gguf", theirs, type_name)
    ours = made_steps.load(tmp_path / "made.gguf", linear.LinearFactory(policy))
    prompt = tokens(18, seed=6)
    found = ours.forward(made_steps.batch_of([Chunk([0, 1, 2, 3, 4], prompt)]), made_steps.new_memory(ours, 5))
    wanted = expected(theirs, prompt)
    scale = max(1.0, float(wanted.abs().max()))
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE * scale)
