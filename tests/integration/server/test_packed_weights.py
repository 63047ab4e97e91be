"""AWQ and GPTQ checkpoints behind the real server: the text of the dequantized model, and a start that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import byte_tokenizer
import httpx
import live
import made_models
import packed_checkpoints
import pytest
import safetensors.torch

from tidemark_runtime.evaluation import reader, subject
from tidemark_runtime.model import sources
from tidemark_runtime.planning import page_layout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CONFIG = {
    **made_models.LLAMA_CONFIG,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": byte_tokenizer.VOCAB_SIZE,
    "max_position_embeddings": 256,
    "eos_token_id": byte_tokenizer.END_ID,
    "torch_dtype": "float16",
}
PROMPT = "The pump stopped at"
TOKENS = 24
FORMATS = (
    packed_checkpoints.Format(method="awq", group_size=32),
    packed_checkpoints.Format(method="gptq", group_size=64, act_order=True),
)


def write(folder: Path, how: packed_checkpoints.Format) -> tuple[Path, Path]:
    """The packed checkpoint, and the same weights dequantized."""
    weights = {name: (tensor * 3).half() for name, tensor in made_models.llama_weights(CONFIG).items()}
    packed, plain = packed_checkpoints.pack(weights, how)
    made = made_models.write_folder(folder / "packed", {**CONFIG, "quantization_config": how.config}, packed)
    wide = {name: tensor.float() for name, tensor in plain.items()}
    expanded = made_models.write_folder(folder / "plain", {**CONFIG, "torch_dtype": "float32"}, wide)
    for one in (made, expanded):
        byte_tokenizer.save(one)
    return made, expanded


def expected_text(folder: Path) -> str:
    """Greedy, from the dequantized weights in float32, without groups and without a server."""
    loaded = subject.load(sources.resolve(str(folder), folder), 1, lambda *_: None, "none")
    layout = page_layout.PageLayout(loaded.model.spec.kv_shape, 16, "float32")
    ids = loaded.encoder.encode(PROMPT, add_special=True)
    (found,) = reader.Reader(loaded.model, layout, len(ids) + TOKENS).continue_greedily([ids], TOKENS)
    return loaded.encoder.decode(found)


@pytest.mark.parametrize("how", FORMATS, ids=lambda how: how.method)
def test_the_server_writes_what_the_dequantized_model_writes(tmp_path: Path, how: packed_checkpoints.Format) -> None:
    packed, plain = write(tmp_path, how)
    flags = ["--threads", "1", "--served-name", "m", "--quantization", how.method, "--dtype", "float32"]
    body: dict[str, Any] = {"model": "m", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    with live.serving(tmp_path, str(packed), *flags) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60, verify=live.CERTIFICATES).json()
    assert answer["choices"][0]["text"] == expected_text(plain)


def test_a_checkpoint_without_its_scales_does_not_start(tmp_path: Path) -> None:
    packed, _ = write(tmp_path, FORMATS[0])
    tensors = safetensors.torch.load_file(packed / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.scales"]
    safetensors.torch.save_file(tensors, packed / "model.safetensors")
    server = live.start(tmp_path, str(packed), "--threads", "1")
    assert server.process.wait(120) != 0
    assert "the tensor model.layers.1.mlp.down_proj.scales is missing beside .qweight" in server.log
