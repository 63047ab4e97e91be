"""Ops of a device against their references, on the device: what `every` is for a processor.

Importing this imports Triton. The model's own matrices are held against rows of the checkpoint where it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch

from tidemark_kernels import dispatch, reference, reference_sampling
from tidemark_kernels.device import attention as device_attention
from tidemark_kernels.device import elementwise, kv_write, layout, sampling, work_list
from tidemark_kernels.selftests import attention, outcomes, target

HALF_TOLERANCE = 5e-3
"""Of float16 activations: one rounding of the largest, as for bfloat16."""
EIGHT_BIT_TOLERANCE = 2e-3
"""Of attention over 8-bit K and V with float32 activations: weights become halves, of 11 bits."""
TOLERANCES: Mapping[torch.dtype, float] = MappingProxyType({**outcomes.TOLERANCES, torch.float16: HALF_TOLERANCE})

_SEED = 20_25
_ROWS = 3
_EPS = 1e-5


def run(
    given: target.Target, vocab_size: int, device: torch.device, *, op_names: frozenset[str]
) -> list[outcomes.Outcome]:
    """The worst outcome of each op and dtype, sorted; of those in `op_names`, that are our kernels."""
    found: list[outcomes.Outcome] = []
    with torch.inference_mode():
        for self_test in dict.fromkeys(EVERY[name] for name in sorted(op_names)):
            found += self_test(given, vocab_size, device, torch.Generator().manual_seed(_SEED))
    return outcomes.worst(outcome for outcome in found if outcome.op in op_names)


def rms_norm(
    given: target.Target, vocab_size: int, device: torch.device, seeded: torch.Generator
) -> Iterator[outcomes.Outcome]:
    """Alone, one row, and with a residual that grows in place and a result in the input's memory, as layers do."""
    name, tolerance = dispatch.dtype_name(given.dtype), TOLERANCES[given.dtype]
    weight = torch.randn(given.hidden_size, generator=seeded)
    x, residual = (torch.randn(_ROWS, given.hidden_size, generator=seeded).to(given.dtype) for _ in range(2))
    for rows in (1, _ROWS):
        room = outcomes.poisoned(rows, given.hidden_size, given.dtype).to(device)
        have = elementwise.rms_norm(x[:rows].to(device), weight.to(device), _EPS, out=room)
        want = reference.rms_norm(x[:rows], weight, _EPS, compute=torch.float64)
        yield outcomes.Outcome("rms_norm", name, outcomes.difference(have.cpu(), want), tolerance, f"{rows} rows")
    have_sum, want_sum, added = residual.to(device, copy=True), residual.clone(), x.to(device, copy=True)
    have = elementwise.rms_norm(added, weight.to(device), _EPS, have_sum, out=added)
    want = reference.rms_norm(x, weight, _EPS, want_sum, compute=torch.float64)
    for what, error in (
        ("the residual's sum", outcomes.difference(have_sum.cpu(), want_sum)),
        ("the norm of a residual's sum", outcomes.difference(have.cpu(), want)),
    ):
        yield outcomes.Outcome("rms_norm", name, error, tolerance, what)


def silu_mul(
    given: target.Target, vocab_size: int, device: torch.device, seeded: torch.Generator
) -> Iterator[outcomes.Outcome]:
    """Gates from -12 to 12: both ends of the exponential."""
    name, tolerance = dispatch.dtype_name(given.dtype), TOLERANCES[given.dtype]
    for rows in (1, _ROWS):
        gate_up = (torch.randn(rows, 2 * given.intermediate_size, generator=seeded) * 4).clamp(-12, 12).to(given.dtype)
        room = outcomes.poisoned(rows, given.intermediate_size, given.dtype).to(device)
        have = elementwise.silu_mul(gate_up.to(device), room)
        want = reference.silu_mul(gate_up, torch.float64)
        yield outcomes.Outcome("silu_mul", name, outcomes.difference(have.cpu(), want), tolerance, f"{rows} rows")


def steps_of_layers(
    given: target.Target, vocab_size: int, device: torch.device, seeded: torch.Generator
) -> Iterator[outcomes.Outcome]:
    """The cases of `attention`, through the kernels."""
    return attention.steps_of_layers(given, seeded, lambda call: _on_device(call, device), _tolerance)


def _on_device(call: attention.Call, device: torch.device) -> torch.Tensor:
    tables, shape = call.tables, call.heads
    slab, segments = tables.slab.to(device), layout.DeviceSegments.of(call.segments, device)
    slab = slab.clone() if device.type == "cpu" else slab
    norms = [None if each is None else each.to(device) for each in call.norms]
    queries = kv_write.rope_and_write(
        call.qkv.to(device),
        tables.cos.to(device),
        tables.sin.to(device),
        *(shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.rotary_dim),
        norms[0],
        norms[1],
        shape.eps,
        slab,
        segments,
        tables.token_page.to(device),
        tables.token_row.to(device),
        tables.block_size,
    )
    work = work_list.plan(
        tables.query_start.diff().numpy(),
        tables.context_lens.numpy(),
        work_list.Shape(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            kv_bytes=slab.shape[1] / tables.block_size,
            window=call.window,
        ),
    )
    mixed = device_attention.paged_attention(
        queries,
        slab,
        segments,
        tables.page_table.to(device),
        device_attention.WorkTensors.of(work, device),
        tables.block_size,
        call.scale,
        call.window,
        out=torch.full_like(queries, torch.nan),
    )
    tables.slab.copy_(slab)
    return mixed.flatten(1).cpu()


def _tolerance(dtype: torch.dtype, kv_dtype: str) -> float:
    is_rounded = kv_dtype not in ("float32", dispatch.dtype_name(dtype))
    return max(TOLERANCES[dtype], EIGHT_BIT_TOLERANCE) if is_rounded else TOLERANCES[dtype]


def sample(
    given: target.Target, vocab_size: int, device: torch.device, seeded: torch.Generator
) -> Iterator[outcomes.Outcome]:
    """Tokens are those of the reference, or they are not; log-probabilities are near."""
    wanted = [
        reference_sampling.Wanted(),
        reference_sampling.Wanted(temperature=0.8, seed=1),
        reference_sampling.Wanted(temperature=1.1, top_k=min(40, vocab_size), top_p=0.9, min_p=0.01, seed=2),
        reference_sampling.Wanted(repetition_penalty=1.3, frequency_penalty=0.5, logit_bias=((1, 5.0),)),
        reference_sampling.Wanted(num_logprobs=min(3, vocab_size)),
    ]
    count = len(wanted)
    logits = torch.randn(count, vocab_size, generator=seeded) * 3
    tokens = torch.randint(0, vocab_size, (count, 16), generator=seeded).to(torch.int32)
    lengths, prompts = torch.arange(4, 4 + count), torch.full((count,), 2)
    params = sampling.Params(count, device)
    for slot, each in enumerate(wanted):
        params.write(slot, each)
    slots, features = torch.arange(count).flip(0), sampling.Features.of(wanted)
    have = sampling.sample(
        logits.to(device),
        slots.to(device),
        params,
        tokens.to(device),
        lengths.to(device),
        prompts.to(device),
        features,
    )
    want = reference_sampling.sample(logits, slots, wanted, tokens, lengths, prompts, features.num_top)
    error = outcomes.equal(have.token_ids.cpu(), want.token_ids)
    yield outcomes.Outcome("sample", "float32", error, 0.0, "tokens, greedy and drawn")
    yield outcomes.Outcome("sample", "float32", outcomes.equal(have.broken.cpu(), want.broken), 0.0, "rows in order")
    if have.top_logprobs is not None and want.top_logprobs is not None:
        asked = ~want.top_logprobs.isnan()
        error = outcomes.difference(have.top_logprobs.cpu()[asked], want.top_logprobs[asked])
        yield outcomes.Outcome("sample", "float32", error, outcomes.FLOAT32_TOLERANCE, "log-probabilities")


SelfTest = Callable[[target.Target, int, torch.device, torch.Generator], Iterator[outcomes.Outcome]]

EVERY: Mapping[str, SelfTest] = MappingProxyType(
    {
        "paged_attention": steps_of_layers,
        "rms_norm": rms_norm,
        "rope_and_write": steps_of_layers,
        "sample": sample,
        "silu_mul": silu_mul,
    }
)
"""Op of `device_dispatch.OPS` -> its self-test."""
