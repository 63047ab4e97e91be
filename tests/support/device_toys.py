"""A device's worker over the toy model, and what a sequence gets alone: for tests of plans.

The device is the interpreter's, or one that a test brings.
"""

from __future__ import annotations

from collections.abc import Sequence

import made_devices
import numpy as np
import torch
import toy_model

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import accelerators, device_draft, device_worker, interface, sampler, slots

MAX_CONTEXT = 24
NUM_SLOTS = 4
GREEDY = sampling.SamplingParams(max_tokens=5, temperature=0.0)
CHOICES = (
    GREEDY,
    sampling.SamplingParams(max_tokens=4, temperature=1.0, seed=7),
    sampling.SamplingParams(max_tokens=6, temperature=0.8, seed=8, top_p=0.9, frequency_penalty=0.5),
    sampling.SamplingParams(max_tokens=3, temperature=0.0, repetition_penalty=1.4, num_logprobs=2),
)


def made_worker(
    num_pages: int,
    block_size: int,
    num_host_pages: int = 0,
    *,
    device: accelerators.Accelerator | None = None,
    kernels: bool = False,
    model: batches.Model | None = None,
    num_guesses: int = 0,
    small: batches.Model | None = None,
) -> device_worker.DeviceWorker:
    """`kernels` False: the sampler in plain torch, many times faster than the interpreter. `small`: a draft model."""
    memory = toy_model.memory(num_pages, block_size)
    facts = interface.WorkerFacts(
        kind="triton",
        device="interpreter",
        dtype="float32",
        layout=memory.layout,
        num_pages=num_pages,
        num_host_pages=num_host_pages,
        max_context_tokens=MAX_CONTEXT,
        memory_bytes={},
    )
    choices = made_devices.choices(kernels=kernels)
    draft = None
    if small is not None:
        pages = toy_model.memory(num_pages, block_size)
        draft = device_draft.Parts(model=small, memory=pages, num_host_pages=num_host_pages, choices=choices)
    loaded = device_worker.Loaded(
        accelerator=device or accelerators.Interpreter(),
        model=model or toy_model.ToyModel(),
        memory=memory,
        facts=facts,
        choices=choices,
        num_guesses=num_guesses,
        draft=draft,
    )
    return device_worker.DeviceWorker(loaded, NUM_SLOTS)


def alone(prompt: Sequence[int], params: sampling.SamplingParams) -> list[int]:
    """What the processor's sampler chooses when everything is computed again for each token."""
    return [token for token, _ in told_alone(prompt, params)]


def told_alone(
    prompt: Sequence[int], params: sampling.SamplingParams
) -> list[tuple[int, step_plan.TokenLogprobs | None]]:
    """With the log-probabilities."""
    tokens = list(prompt)
    found: list[tuple[int, step_plan.TokenLogprobs | None]] = []
    while len(found) < params.max_tokens:
        tables = slots.SlotTables(1, MAX_CONTEXT, MAX_CONTEXT)
        tables.apply(step_plan.StepPlan(step=0, joins=(step_plan.Join(0, tuple(tokens), len(prompt), params),)))
        ids, told = sampler.sample(toy_model.toy_logits(tokens).unsqueeze(0), tables, np.array([0]))
        tokens.append(int(ids[0]))
        found.append((tokens[-1], told[0]))
    return found


def joined(slot: int, prompt: Sequence[int], params: sampling.SamplingParams, *pages: int) -> step_plan.Join:
    return step_plan.Join(slot, tuple(prompt), len(prompt), params, pages=pages)


class SmallModel(toy_model.ToyModel):
    """A draft that says what the toy says, but for every so many places, where it does not. Counts its tokens; memory
    runs out in it where a test wants so."""

    def __init__(self, vocab_size: int = toy_model.VOCAB, wrong_every: int = 0) -> None:
        self.spec = toy_model.ToySpec(vocab_size=vocab_size)
        self._wrong_every = wrong_every
        self.num_tokens = 0
        self.fails_after: int | None = None
        """Forward passes that go well before memory runs out."""

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        if self.fails_after is not None:
            if self.fails_after == 0:
                raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB")
            self.fails_after -= 1
        self.num_tokens += int((batch.token_page >= 0).sum())
        assert batch.token_ids.numel() == 0 or int(batch.token_ids.max()) < self.spec.vocab_size
        logits = super().forward(batch, memory)
        width = self.spec.vocab_size
        if width <= toy_model.VOCAB:
            logits = logits[:, :width]
        else:
            logits = torch.nn.functional.pad(logits, (0, width - toy_model.VOCAB), value=9.0)
        for row, at in enumerate(batch.sample_rows.tolist()):
            if self._wrong_every and int(batch.positions[at]) % self._wrong_every == 0:
                logits[row] = logits[row].flip(0)
        return logits.contiguous()
