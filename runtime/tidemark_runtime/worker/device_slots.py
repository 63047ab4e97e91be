"""What a device keeps of each running sequence: tokens, pages, how to sample. Beside it, what the host knows of that.

The host knows everything but the values of sampled tokens: how long each sequence is, and which pages it has. So it can
write a step's tables before the step before it has ended. The values stay on the device: a step takes its newest tokens
from `tokens` by place, and writes the next ones there. Where guesses are checked the host does not know how many tokens
came of it, and asks before it writes the next step's tables. All that were sampled are written, from the place of the
first guess on: as far as the guesses were right they are what stood there, then comes the token after them, and what
lies behind is no text and written over before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tidemark_kernels.device import sampling as device_sampling
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import accelerators, device_buffers, slots


class DeviceTables:
    """Rows are slots; one more than there are, for the rows that fill up a recorded step: nobody looks at it."""

    def __init__(
        self, accelerator: accelerators.Accelerator, max_num_seqs: int, max_context_tokens: int, block_size: int
    ) -> None:
        self.host = slots.SlotTables(max_num_seqs, max_context_tokens, block_size)
        """Lengths, page tables and parameters; of the tokens only those that came from the host, 0 elsewhere."""
        self.spare = max_num_seqs
        self.staging = device_buffers.Staging(accelerator)
        num_rows, device = max_num_seqs + 1, accelerator.device
        self.tokens = torch.zeros((num_rows, max_context_tokens + 1), dtype=torch.int32, device=device)
        """As `slots.SlotTables.tokens`."""
        self.lengths = torch.zeros(num_rows, dtype=torch.int64, device=device)
        """Of those that sample in the step at hand: tokens known before it. Of others anything."""
        self.num_prompt_tokens = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self.pages = torch.zeros((num_rows, self.host.pages.shape[1]), dtype=torch.int32, device=device)
        self.params = device_sampling.Params(num_rows, device)
        self.features: list[device_sampling.Features] = [device_sampling.Features()] * max_num_seqs
        """What each slot asks of the sampler."""

    @property
    def num_bytes(self) -> int:
        """Of the device."""
        params = (self.params.table, self.params.bias_ids, self.params.bias_values)
        tables = (self.tokens, self.lengths, self.num_prompt_tokens, self.pages, *params)
        return sum(table.numel() * table.element_size() for table in tables)

    def take_in(self, plan: step_plan.StepPlan) -> None:
        """The plan's joins and new pages, on the host and, in the current stream, on the device.

        Raises ValueError for a plan that contradicts what the tables hold.
        """
        self.host.take_in(plan)
        fresh = {join.slot: len(join.pages) for join in plan.joins}
        for added in plan.new_pages:
            fresh[added.slot] = fresh.get(added.slot, 0) + len(added.pages)
        if any(fresh.values()):
            self._write_pages(fresh)
        if plan.joins:
            self._join(plan.joins)

    def rows(self, plan: step_plan.StepPlan, verifications: tuple[step_plan.Verification, ...]) -> slots.Rows:
        """What the plan computes, with these for its verifications. Raises as `take_in`."""
        return self.host.rows(plan, verifications)

    def guess(self, verifications: Sequence[step_plan.Verification]) -> None:
        """Their guesses lie behind the known tokens on the device, too, as they do on the host since `rows`."""
        places = [self.places_behind(each) for each in verifications]
        guesses = [np.array(each.guesses, dtype=np.int32) for each in verifications]
        found = self._send(at=np.concatenate(places), guesses=np.concatenate(guesses))
        self.tokens.view(-1).index_copy_(0, found["at"], found["guesses"])

    def guesses_of(self, verifications: Sequence[step_plan.Verification]) -> torch.Tensor:
        """int32, on the device: what lies behind the known tokens of each, `count` of them, one after the other."""
        found = self._send(at=np.concatenate([self.places_behind(each) for each in verifications]))
        return self.tokens.view(-1).index_select(0, found["at"])

    def places_behind(self, verification: step_plan.Verification) -> slots.Int64:
        """Where its guesses lie in `tokens`, counted through all rows."""
        first = verification.slot * self.tokens.shape[1] + int(self.host.lengths[verification.slot])
        return np.arange(first, first + verification.count, dtype=np.int64)

    def features_of(self, sampled: slots.Int64) -> device_sampling.Features:
        """What the rows of these slots ask for, all together."""
        kinds = {self.features[slot] for slot in sampled.tolist()}
        tops = [each.num_top for each in kinds if each.num_top is not None]
        return device_sampling.Features(
            any(each.samples for each in kinds), any(each.adjusts for each in kinds), max(tops) if tops else None
        )

    def append(self, sampled: slots.Int64) -> None:
        """The host's side of a step that was launched: each of these slots has one token more."""
        self.host.append(sampled, np.zeros_like(sampled))

    def accept(self, slot: int, num_tokens: int) -> None:
        """The host's side of a verification that is over: so many tokens, on the device already, belong to the text."""
        self.host.accept(slot, [0] * num_tokens)

    def _write_pages(self, fresh: dict[int, int]) -> None:
        """Slot -> how many of its last pages are new."""
        width, ends = self.pages.shape[1], self.host.num_pages
        spans = [(slot, int(ends[slot]) - count, int(ends[slot])) for slot, count in fresh.items()]
        at = np.concatenate([np.arange(slot * width + start, slot * width + end) for slot, start, end in spans])
        pages = np.concatenate([self.host.pages[slot, start:end] for slot, start, end in spans])
        found = self._send(at=at, pages=pages)
        self.pages.view(-1).index_copy_(0, found["at"], found["pages"])

    def _join(self, joins: tuple[step_plan.Join, ...]) -> None:
        found = self._send(
            slots=np.array([join.slot for join in joins], dtype=np.int64),
            num_prompt_tokens=np.array([join.num_prompt_tokens for join in joins], dtype=np.int64),
            tokens=np.concatenate([np.array(join.token_ids, dtype=np.int32) for join in joins]),
        )
        self.num_prompt_tokens.index_copy_(0, found["slots"], found["num_prompt_tokens"])
        start = 0
        for join in joins:
            end = start + len(join.token_ids)
            self.tokens[join.slot, : end - start].copy_(found["tokens"][start:end])
            wanted = wanted_of(join.params)
            self.params.write(join.slot, wanted)
            self.features[join.slot] = device_sampling.Features.of([wanted])
            start = end

    def _send(self, **arrays: device_buffers.Array) -> dict[str, torch.Tensor]:
        packed = device_buffers.Packed.of(arrays)
        return packed.views(self.staging.send(arrays, packed))


def wanted_of(params: sampling.SamplingParams) -> device_sampling.Wanted:
    """The same for the device's sampler."""
    return device_sampling.Wanted(
        temperature=0.0 if params.is_greedy else params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        seed=params.seed,
        logit_bias=params.logit_bias,
        num_logprobs=params.num_logprobs,
    )
