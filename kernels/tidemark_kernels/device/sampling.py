"""The next token of each row of logits, without a word to the host: `Params` by slot, `sample`, its `Workspace`."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tidemark_kernels import reference_sampling
from tidemark_kernels.device import arguments
from tidemark_kernels.jit import sampling, sampling_counts, sampling_logprobs
from tidemark_kernels.tuning import sampling as tuning

MAX_BIASES = 1024
"""Entries of one sequence's bias list: its place + 1 must fit into 11 bits (`jit.sampling_counts`)."""
MAX_TOKENS = 1 << 20
"""A token's count must fit into 20 bits."""
Wanted = reference_sampling.Wanted
Sampled = reference_sampling.Sampled
_ROW = struct.Struct("<fifffffiQi20x")
"""16 words, as `jit.sampling_rules` counts them: one line of a cache."""
_BELOW_ONE = 1.0 - 2.0**-24
"""The largest float32 under 1: a top-p that rounds to 1 is still one."""


@dataclass(frozen=True, slots=True)
class Features:
    """What the rows of a launch ask for, all together: what none asks for costs nothing. One captured graph each."""

    samples: bool = False
    adjusts: bool = False
    """Bias or penalties: a copy of the logits is written, float32 [S, V]."""
    num_top: int | None = None
    """Columns of log-probabilities, 0 to 20; None: none, not even the chosen token's."""

    @classmethod
    def of(cls, wanted: Iterable[Wanted]) -> Features:
        samples = adjusts = False
        num_top: int | None = None
        for each in wanted:
            samples |= each.temperature > 0.0
            adjusts |= each.adjusts
            if each.num_logprobs is not None:
                num_top = max(num_top or 0, each.num_logprobs)
        return cls(samples, adjusts, num_top)


class Params:
    """How each slot samples, on the device: 8.3 KiB a slot, nearly all of it for biases."""

    def __init__(self, max_num_seqs: int, device: torch.device) -> None:
        self.table = torch.zeros((max_num_seqs, _ROW.size // 4), dtype=torch.int32, device=device)
        self.bias_ids = torch.zeros((max_num_seqs, MAX_BIASES), dtype=torch.int32, device=device)
        self.bias_values = torch.zeros((max_num_seqs, MAX_BIASES), dtype=torch.float32, device=device)
        for slot in range(max_num_seqs):
            self.write(slot, Wanted())

    def write(self, slot: int, wanted: Wanted) -> None:
        """Queue the copy of one slot's parameters, in the order of the current stream; the host does not wait.

        Raises ValueError for a slot or a bias list that the tables cannot hold.
        """
        if not 0 <= slot < self.table.shape[0]:
            raise ValueError(f"slot is {slot}, expected 0 to {self.table.shape[0] - 1}")
        ids = [token for token, _ in wanted.logit_bias]
        if len(ids) > MAX_BIASES or len(set(ids)) < len(ids):
            raise ValueError(
                f"logit_bias of slot {slot} has {len(ids)} entries for {len(set(ids))} tokens, "
                f"expected at most {MAX_BIASES}, each token once"
            )
        self._copy(self.table[slot], _row(wanted))
        if ids:
            self._copy(self.bias_ids[slot, : len(ids)], torch.tensor(ids, dtype=torch.int32))
            values = torch.tensor([value for _, value in wanted.logit_bias], dtype=torch.float32)
            self._copy(self.bias_values[slot, : len(ids)], values)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # Memory of its own for each copy: what the host writes next must not change one that is still under way.
        target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)


def _row(wanted: Wanted) -> torch.Tensor:
    packed = _ROW.pack(
        wanted.temperature,
        min(wanted.top_k, (1 << 31) - 1),
        min(wanted.top_p, _BELOW_ONE) if wanted.top_p < 1.0 else 1.0,
        wanted.min_p,
        wanted.repetition_penalty,
        wanted.presence_penalty,
        wanted.frequency_penalty,
        len(wanted.logit_bias),
        wanted.seed & reference_sampling.MASK,
        -1 if wanted.num_logprobs is None else wanted.num_logprobs,
    )
    return torch.frombuffer(bytearray(packed), dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory between the launches of one call. Kept by a caller that captures graphs or saves allocations: calls of one
    stream may share it. A vocabulary of 131,072 takes 40 KiB a row that may sample, and 520 KiB more with bias or
    penalties: 140 MiB for 256 rows."""

    words: torch.Tensor
    """int32 [max_rows * V]: counts, then the changed logits; empty without bias and penalties."""
    best: torch.Tensor
    index: torch.Tensor
    tempered: torch.Tensor
    plain: torch.Tensor
    groups: torch.Tensor
    values: torch.Tensor
    ids: torch.Tensor
    no_guesses: torch.Tensor
    """int64 [max_rows], zeros."""
    max_rows: int
    vocab_size: int
    features: Features

    @classmethod
    def allocate(cls, max_rows: int, vocab_size: int, features: Features, device: torch.device) -> Workspace:
        form = tuning.form(vocab_size)
        kinds = 2 if features.adjusts else 1
        blocks = max_rows * form.num_blocks(vocab_size)
        groups = max_rows * form.num_groups(vocab_size)
        needs_groups = features.samples or features.num_top is not None
        places = max_rows * form.capacity if features.samples else 0

        def empty(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(count, dtype=dtype, device=device)

        return cls(
            words=empty(max_rows * vocab_size if features.adjusts else 0, torch.int32),
            best=empty(kinds * blocks),
            index=empty(kinds * blocks, torch.int32),
            tempered=empty(blocks if features.samples else 0),
            plain=empty(blocks if features.num_top is not None else 0),
            groups=empty(kinds * groups if needs_groups else 0),
            values=empty(places),
            ids=empty(places, torch.int32),
            no_guesses=torch.zeros(max_rows, dtype=torch.int64, device=device),
            max_rows=max_rows,
            vocab_size=vocab_size,
            features=features,
        )


def sample(
    logits: torch.Tensor,
    slots: torch.Tensor,
    params: Params,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    num_prompt_tokens: torch.Tensor,
    features: Features,
    out: Sampled | None = None,
    workspace: Workspace | None = None,
    behind: torch.Tensor | None = None,
) -> Sampled:
    """One token for each row: float32 `logits` [S, V] of the sequences in `slots` (int64 [S]).

    `tokens` int32 [max_num_seqs, any] holds `lengths` (int64 [max_num_seqs]) known ones, the first `num_prompt_tokens`
    (int64) of them the prompt's; `behind` (int64 [S]) more, guessed ones, lie behind these
    for each row. The host sampler's token: the same places of a seed, the same order of filters, equal
    logits by id; sums differ in their last bits, and with them a token at a border between two. `features` must cover
    what the rows ask for, else they come back as MISLAUNCHED. Nothing waits for the device; `logits` are left as they
    are. Raises ValueError.
    """
    num_rows, vocab_size = _check(logits, slots, params, tokens, lengths, num_prompt_tokens, features)
    if behind is not None:
        arguments.tensor("behind", behind, (torch.int64,), (num_rows,), logits.device)
    workspace = workspace or Workspace.allocate(num_rows, vocab_size, features, logits.device)
    behind = workspace.no_guesses if behind is None else behind
    out = out or empty_sampled(num_rows, features, logits.device)
    _check_space(workspace, out, num_rows, vocab_size, features)
    if num_rows == 0:
        return out
    form = tuning.form(vocab_size)
    blocks, groups = form.num_blocks(vocab_size), form.num_groups(vocab_size)
    strides = {"logits_stride": logits.stride(0), "table_stride": params.table.stride(0)}
    sizes = {"vocab_size": vocab_size, "num_blocks": blocks, "num_groups": groups}
    rows = {"slots": slots, "table": params.table}
    stats = {"best": workspace.best, "groups": workspace.groups}
    flags = {"SAMPLES": features.samples, "ADJUSTS": features.adjusts, "BLOCK": form.block}
    has_logprobs = features.num_top is not None
    warps = {"num_warps": form.num_warps, "num_stages": 1}
    if features.adjusts:
        workspace.words[: num_rows * vocab_size].zero_()
        sampling_counts.count[(num_rows, tuning.COUNT_SPLITS)](
            workspace.words, slots, params.table, params.bias_ids, tokens, lengths, behind, num_prompt_tokens,
            vocab_size, params.table.stride(0), params.bias_ids.stride(0), tokens.stride(0),
            BLOCK=tuning.COUNT_BLOCK, SPLITS=tuning.COUNT_SPLITS, num_warps=4, num_stages=1,
        )  # fmt: skip
    sampling.scan[(num_rows, blocks)](
        logits=logits, words=workspace.words, bias_values=params.bias_values, index=workspace.index,
        tempered=workspace.tempered, plain=workspace.plain, num_rows=num_rows, bias_stride=params.bias_values.stride(0),
        **rows, **stats, **sizes, **strides, **flags, GROUP=form.group, LOGPROBS=has_logprobs, **warps,
        enable_fp_fusion=False,  # a penalty is rounded twice, as on the host
    )  # fmt: skip
    source = workspace.words.view(torch.float32) if features.adjusts else logits
    sampling.choose[(num_rows,)](
        source=source, lengths=lengths, behind=behind, index=workspace.index, tempered=workspace.tempered,
        buffer_values=workspace.values, buffer_ids=workspace.ids, token_ids=out.token_ids, broken=out.broken,
        source_stride=vocab_size if features.adjusts else logits.stride(0), table_stride=params.table.stride(0),
        adjusts=int(features.adjusts), num_rows=num_rows, **rows, **stats, **sizes, BLOCK=form.block, TILE=form.tile,
        BLOCKS=tuning.power_of_two(blocks), CAPACITY=form.capacity, SAMPLES=features.samples, **warps,
    )  # fmt: skip
    if has_logprobs:
        sampling_logprobs.logprobs[(num_rows,)](
            logits=logits, plain=workspace.plain, token_ids=out.token_ids, broken=out.broken,
            chosen=out.logprobs, top_ids=out.top_ids, top_logprobs=out.top_logprobs,
            **rows, **stats, **sizes, **strides,
            BLOCKS=tuning.power_of_two(blocks), GROUPS=tuning.power_of_two(groups), GROUP=form.group,
            NUM_TOP=features.num_top, **warps,
        )  # fmt: skip
    return out


def empty_sampled(num_rows: int, features: Features, device: torch.device) -> Sampled:
    """Where results go; the contents are anything."""
    made = {
        name: torch.empty((num_rows, *more), dtype=dtype, device=device) for name, dtype, *more in _outputs(features)
    }
    return Sampled(**made)


def _check(
    logits: torch.Tensor,
    slots: torch.Tensor,
    params: Params,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    num_prompt_tokens: torch.Tensor,
    features: Features,
) -> tuple[int, int]:
    if logits.dim() != 2 or logits.dtype != torch.float32 or logits.stride(1) != 1:
        raise ValueError(
            f"logits are {logits.dtype} {list(logits.shape)} with strides {logits.stride()}, "
            "expected torch.float32 [rows, vocabulary] with stride 1 in a row"
        )
    num_rows, vocab_size = logits.shape
    if not 2 <= vocab_size <= tuning.MAX_VOCAB:
        raise ValueError(f"logits have {vocab_size} columns, expected 2 to {tuning.MAX_VOCAB}")
    num_slots, device = params.table.shape[0], logits.device
    arguments.tensor("slots", slots, (torch.int64,), (num_rows,), device)
    arguments.tensor("lengths", lengths, (torch.int64,), (num_slots,), device)
    arguments.tensor("num_prompt_tokens", num_prompt_tokens, (torch.int64,), (num_slots,), device)
    arguments.tensor("tokens", tokens, (torch.int32,), (num_slots, -1), device)
    if not 0 < tokens.shape[1] < MAX_TOKENS:
        raise ValueError(f"tokens has {tokens.shape[1]} columns, expected 1 to {MAX_TOKENS - 1}")
    if params.table.device != logits.device:
        raise ValueError(f"params are on {params.table.device}, expected {logits.device} as logits")
    if features.num_top is not None and not 0 <= features.num_top <= tuning.MAX_TOP:
        raise ValueError(f"features.num_top is {features.num_top}, expected None or 0 to {tuning.MAX_TOP}")
    return num_rows, vocab_size


def _check_space(workspace: Workspace, out: Sampled, num_rows: int, vocab_size: int, features: Features) -> None:
    if workspace.max_rows < num_rows or (workspace.vocab_size, workspace.features) != (vocab_size, features):
        raise ValueError(
            f"workspace is for {workspace.max_rows} rows of {workspace.vocab_size} with {workspace.features}, "
            f"expected at least {num_rows} rows of {vocab_size} with {features}"
        )
    device = workspace.best.device
    for name, dtype, *more in _outputs(features):
        seen = getattr(out, name)
        if seen is None:
            raise ValueError(f"out.{name} is None, expected a tensor, as features ask for log-probabilities")
        arguments.tensor(f"out.{name}", seen, (dtype,), (num_rows, *more), device)


def _outputs(features: Features) -> list[tuple[str, torch.dtype, *tuple[int, ...]]]:
    """Name, dtype and further sizes of each result."""
    found: list[tuple[str, torch.dtype, *tuple[int, ...]]] = [("token_ids", torch.int64), ("broken", torch.int32)]
    if features.num_top is not None:
        top = features.num_top
        found += [("logprobs", torch.float32), ("top_ids", torch.int64, top), ("top_logprobs", torch.float32, top)]
    return found
