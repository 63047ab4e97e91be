"""A draft model whose weights hold no numbers: refused at the start, and named where it shows later."""

from __future__ import annotations

import math
import types
from pathlib import Path

import made_models
import pytest
import torch

from tidemark_runtime import config, errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import sources
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import draft_model, loading, slab, slots

VOCAB = 8


def load_with_draft(folder: Path, draft: Path) -> loading.Loaded:
    settings = config.EngineConfig(
        model=config.ModelConfig(dtype="float32"),
        kv_cache=config.KVCacheConfig(num_pages=12, block_size=4),
        scheduler=config.SchedulerConfig(max_num_seqs=3),
        speculative=config.SpeculativeConfig(method="draft", draft_model=str(draft)),
        hardware=config.HardwareConfig(threads=1),
    )
    return loading.load(settings, sources.ModelSource("huggingface", folder, "made"), lambda _phase, _fraction: None)


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("model.embed_tokens.weight", "the embedding"),
        ("lm_head.weight", "the output layer"),
        ("model.layers.0.mlp.down_proj.weight", r"model\.layers\.0\.mlp\.down_proj"),
    ],
)
@pytest.mark.parametrize("damage", [math.nan, math.inf])
def test_a_damaged_draft_model_is_refused_at_the_start(tmp_path: Path, name: str, whose: str, damage: float) -> None:
    weights = made_models.llama_weights()
    folder = made_models.write_folder(tmp_path / "whole", made_models.LLAMA_CONFIG, weights)
    assert load_with_draft(folder, folder).draft is not None
    weights[name][3, 3] = damage
    draft = made_models.write_folder(tmp_path / "damaged", made_models.LLAMA_CONFIG, weights)
    with pytest.raises(errors.CorruptModel, match=rf"^speculative\.draftModel: {whose}.* has an infinity or a NaN"):
        load_with_draft(folder, draft)


class NoNumbers:
    """Overflows wherever it is asked."""

    spec: model_spec.ModelSpec = types.SimpleNamespace(vocab_size=VOCAB)  # type: ignore[assignment]

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        return torch.full((batch.sample_rows.shape[0], VOCAB), math.nan)


def test_a_draft_model_that_computes_no_number_is_named() -> None:
    """Nobody should look for the fault in the model."""
    layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 1), 4, "float32")
    memory = batches.KVMemory.of(slab.allocate(2, layout.page_bytes), layout)
    tables = slots.SlotTables(1, 8, 2)
    join = step_plan.Join(0, (3, 1), 2, sampling.SamplingParams(max_tokens=4, temperature=0.0), pages=(0,))
    tables.apply(step_plan.StepPlan(step=1, joins=(join,)))
    draft = draft_model.DraftModel(draft_model.Parts(NoNumbers(), memory, 0), tables, VOCAB)
    with pytest.raises(errors.EngineError, match=r"^the draft model: .*speculative\.draftModel"):
        draft.guess((step_plan.Verification(0, 2),))
