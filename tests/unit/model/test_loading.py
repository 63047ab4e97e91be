from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_models
import made_steps
import pytest
import torch
from made_models import LLAMA_CONFIG

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint, loading, sources


def folder_with(tmp_path: Path, **changed: torch.Tensor | None) -> Path:
    """A llama whose tensors (named with __ for .) are replaced, or left out where None."""
    changes = {name.replace("__", "."): tensor for name, tensor in changed.items()}
    weights = {**made_models.llama_weights(), **changes}
    kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
    return made_models.write_folder(tmp_path / "m", LLAMA_CONFIG, kept)


def test_progress_goes_up_to_one_and_names_what_was_loaded(tmp_path: Path) -> None:
    path = folder_with(tmp_path)
    told: list[tuple[str, float]] = []
    opened = checkpoint.open_checkpoint(sources.resolve(str(path), path))
    loading.load(opened, made_steps.plain_factory(), lambda what, share: told.append((what, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert told[-1] == ("done", 1.0)
    assert shares[-2] == pytest.approx(1.0)
    assert "model.layers.0.mlp.down_proj.weight" in [what for what, _ in told]


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("model.embed_tokens.weight", (47, 32), "[48, 32]"),
        ("model.layers.0.self_attn.k_proj.weight", (32, 32), "[16, 32]"),
        ("model.layers.0.mlp.down_proj.weight", (64, 32), "[32, 64]"),
        ("model.norm.weight", (33,), "[32]"),
        ("lm_head.weight", (48, 31), "[48, 32]"),
    ],
)
def test_a_wrong_shape_names_tensor_seen_and_expected(
    tmp_path: Path, name: str, shape: tuple[int, ...], expected: str
) -> None:
    path = folder_with(tmp_path, **{name: torch.zeros(shape)})
    with pytest.raises(errors.CorruptModel) as caught:
        made_steps.load(path)
    assert str(caught.value) == f"the tensor {name} has the shape {list(shape)}, expected {expected}"


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = folder_with(tmp_path, **{"model.layers.0.mlp.up_proj.weight": None})
    with pytest.raises(errors.CorruptModel, match=r"model\.layers\.0\.mlp\.up_proj\.weight is missing"):
        made_steps.load(path)


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    path = folder_with(tmp_path, **{"model.layers.0.self_attn.q_norm.weight": torch.ones(16)})
    with pytest.raises(errors.UnsupportedModel, match=r"llama has no place for: model\.layers\.0\.self_attn\.q_norm"):
        made_steps.load(path)


def test_rotary_buffers_of_old_checkpoints_are_left_out(tmp_path: Path) -> None:
    path = folder_with(tmp_path, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    assert made_steps.load(path).spec.num_layers == 1


LARGE: dict[str, Any] = {
    **LLAMA_CONFIG,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
}

MEASURE = """
import sys, threading, time, psutil
from pathlib import Path
import made_steps
from tidemark_kernels import dispatch
dispatch.current()
made_steps.load(Path(sys.argv[2]))
process = psutil.Process()
before, peak, done = process.memory_info().rss, 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.0005)
thread = threading.Thread(target=watch)
thread.start()
model = made_steps.load(Path(sys.argv[1]))
done = True
thread.join()
print(max(peak, process.memory_info().rss) - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["mapped as they are", "converted"])
def test_loading_peaks_below_1_3_times_the_weights(tmp_path: Path, dtype: torch.dtype) -> None:
    """In memory the weights are float32. Without giving pages back, the converted ones would peak at 1.5 times."""
    made = made_models.llama_weights(LARGE)
    num_bytes = sum(tensor.nbytes for tensor in made.values())
    assert num_bytes > 80e6
    weights = {name: tensor.to(dtype) for name, tensor in made.items()}
    path = made_models.write_folder(tmp_path / "large", LARGE, weights)
    command = [sys.executable, "-c", MEASURE, str(path), str(folder_with(tmp_path))]
    support = Path(made_steps.__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=support, env=environment, check=True, capture_output=True, text=True)
    peak_bytes = int(done.stdout)
    assert peak_bytes < 1.3 * num_bytes, f"{peak_bytes} bytes at the peak for {num_bytes} bytes of weights"
