"""Sampling on a device: the token of the reference and of the host's sampler, whatever the row asks for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import kernel_case
import pytest
import torch

from tidemark_kernels import reference_sampling
from tidemark_kernels.device import sampling
from tidemark_runtime.worker import sampling_math

Wanted = reference_sampling.Wanted
CPU = torch.device("cpu")
GREEDY = Wanted()
MIXED = (
    GREEDY,
    Wanted(temperature=1.0, seed=3),
    Wanted(temperature=0.8, seed=-4, top_p=0.9),
    Wanted(temperature=1.2, seed=5, top_k=6, min_p=0.05),
    Wanted(temperature=0.9, seed=2**63 - 1, top_k=12, top_p=0.8),
    Wanted(temperature=1.0, seed=7, min_p=0.1),
    Wanted(temperature=1.0, seed=8, top_k=5000, top_p=0.999999),
    Wanted(temperature=0.7, seed=9, top_p=1e-9),
)
ADJUSTED = (
    *MIXED[:3],
    Wanted(repetition_penalty=1.5),
    Wanted(temperature=1.0, seed=6, presence_penalty=1.0, frequency_penalty=0.5),
    Wanted(logit_bias=((6, 9.0), (3, -100.0))),
    Wanted(temperature=0.9, top_p=0.9, logit_bias=((0, 1.5), (2, 0.5)), repetition_penalty=0.8, frequency_penalty=0.3),
)
LOGPROBS = (
    Wanted(num_logprobs=0),
    Wanted(temperature=1.0, seed=1, num_logprobs=3),
    GREEDY,
    Wanted(num_logprobs=20, presence_penalty=0.5),
)
CLOSE = (
    *(Wanted(repetition_penalty=one) for one in (1.7, 0.6)),
    *(Wanted(presence_penalty=one) for one in (0.4, -0.4)),
    *(Wanted(frequency_penalty=one) for one in (0.3, -0.3)),
)
"""For logits so close to each other that a penalty decides."""
SHARP = (
    *(Wanted(temperature=1.0, top_k=30, min_p=0.5, seed=seed) for seed in range(4)),
    Wanted(temperature=1.0, top_p=0.99, min_p=0.5, seed=9),
)
"""min-p takes most of what the filters before it leave."""
FILTERS = ((0, 1.0, 0.0), (20, 1.0, 0.0), (0, 0.9, 0.0), (40, 0.8, 0.05))
"""top-k, top-p and min-p."""
ROWS = {"greedy": (GREEDY,) * 3, "mixed": MIXED, "adjusted": ADJUSTED, "logprobs": LOGPROBS}


@dataclass(frozen=True)
class Batch:
    """Rows in any order; slot i wants `wanted[i]`."""

    logits: torch.Tensor
    wanted: tuple[Wanted, ...]
    slots: torch.Tensor
    tokens: torch.Tensor
    lengths: torch.Tensor
    num_prompt_tokens: torch.Tensor
    behind: torch.Tensor | None = None

    @property
    def features(self) -> sampling.Features:
        return sampling.Features.of(self.wanted)

    def on_device(self, **options: object) -> sampling.Sampled:
        params = sampling.Params(len(self.wanted), CPU)
        for slot, each in enumerate(self.wanted):
            params.write(slot, each)
        known = (self.tokens, self.lengths, self.num_prompt_tokens)
        arguments = {"features": self.features, "behind": self.behind, **options}
        return sampling.sample(self.logits, self.slots, params, *known, **arguments)  # type: ignore[arg-type]

    def by_reference(self) -> sampling.Sampled:
        known = (self.tokens, self.lengths, self.num_prompt_tokens)
        return reference_sampling.sample(
            self.logits, self.slots, self.wanted, *known, self.features.num_top, self.behind
        )


def make_batch(wanted: Sequence[Wanted], vocab: int, seed: int = 0, width: float = 2.0) -> Batch:
    """Every row sees 3 to 24 tokens, ten of a prompt; those beyond are of no sequence."""
    generator = torch.Generator().manual_seed(seed)
    count = len(wanted)
    return Batch(
        torch.randn(count, vocab, generator=generator) * width,
        tuple(wanted),
        torch.randperm(count, generator=generator),
        torch.randint(vocab, (count, 25), generator=generator, dtype=torch.int32),
        torch.randint(3, 25, (count,), generator=generator),
        torch.full((count,), 2),
    )


def compared(got: sampling.Sampled, expected: sampling.Sampled) -> list[kernel_case.Compared]:
    exact = [(got.token_ids, expected.token_ids), (got.broken, expected.broken)]
    found = [kernel_case.Compared(*pair, 0.0) for pair in exact]
    if got.logprobs is None:
        return found
    assert got.top_ids is not None and got.top_logprobs is not None  # noqa: PT018
    assert expected.logprobs is not None and expected.top_ids is not None and expected.top_logprobs is not None  # noqa: PT018
    found.append(kernel_case.Compared(got.top_ids, expected.top_ids, 0.0))
    found.append(kernel_case.Compared(got.logprobs, expected.logprobs, 1e-5))
    found.append(kernel_case.Compared(got.top_logprobs, expected.top_logprobs, 1e-5))
    return found


def both(batch: Batch, **options: object) -> list[kernel_case.Compared]:
    return compared(batch.on_device(**options), batch.by_reference())


def of_rows(batch: Batch, rows: slice) -> Batch:
    return replace(batch, logits=batch.logits[rows], slots=batch.slots[rows])


def rounded(batch: Batch) -> Batch:
    """Many logits are equal."""
    return replace(batch, logits=batch.logits.round())


def poisoned(batch: Batch) -> list[kernel_case.Compared]:
    """Everything that the op writes to holds rubbish first: results, workspace, rows beyond this call's."""
    features = batch.features
    out = sampling.empty_sampled(len(batch.slots), features, CPU)
    workspace = sampling.Workspace.allocate(len(batch.slots) + 3, batch.logits.shape[1], features, CPU)
    for holder in (out, workspace):
        for name in holder.__slots__:
            tensor = getattr(holder, name)
            if isinstance(tensor, torch.Tensor) and name != "no_guesses":
                tensor.fill_(math.nan if tensor.is_floating_point() else -77)
    return both(batch, out=out, workspace=workspace)


def guesses() -> list[kernel_case.Compared]:
    """Three rows of one sequence, each a token further on, and another sequence."""
    batch = make_batch(ADJUSTED[-2:], 37)
    logits = torch.randn(4, 37, generator=torch.Generator().manual_seed(4))
    lengths, behind = torch.tensor([9, 4]), torch.tensor([0, 1, 2, 0])
    return both(replace(batch, logits=logits, slots=torch.tensor([0, 0, 0, 1]), lengths=lengths, behind=behind))


def _case(name: str, covers: set[str], run: Callable[[], list[kernel_case.Compared]]) -> kernel_case.Case:
    return kernel_case.Case("sample", name, frozenset(covers), run)


CASES: tuple[kernel_case.Case, ...] = (
    *(
        _case(f"{name}-{vocab}", {"odd shape"}, lambda wanted=wanted, vocab=vocab: both(make_batch(wanted, vocab)))
        for vocab in (7, 37, 130)
        for name, wanted in ROWS.items()
    ),
    _case("mixed-1000", {"odd shape"}, lambda: both(make_batch(MIXED[:4], 1000))),
    _case("flat", set(), lambda: both(make_batch(MIXED, 37, seed=1, width=0.01))),
    _case("peaked", set(), lambda: both(make_batch(MIXED, 37, seed=2, width=20.0))),
    _case("one row", {"one token"}, lambda: both(make_batch(MIXED[2:3], 37))),
    _case("no row", {"empty"}, lambda: both(of_rows(make_batch(MIXED, 37), slice(0)))),
    _case("rubbish", {"poisoned output"}, lambda: poisoned(make_batch((*LOGPROBS, *MIXED[:3]), 37))),
    _case("penalties decide", set(), lambda: both(make_batch(CLOSE, 37, seed=3, width=0.2))),
    _case("min-p decides", set(), lambda: both(make_batch(SHARP, 37, seed=4, width=1.0))),
    _case("equal logits", set(), lambda: both(rounded(make_batch((*LOGPROBS[1::2], Wanted(num_logprobs=9)), 37)))),
    _case("guesses", set(), guesses),
)  # fmt: skip
LACKS = {
    "sample": {
        "page border": "logits and tokens lie in no pages",
        "every dtype": "logits are float32 alone: the head's sums are, and rounding them would change texts",
        "precision map": "no KV memory is read",
        "poisoned pages": "no pages are read",
        "permuted pages": "no pages are read; cases have their slots in any order",
    }
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


def test_the_token_is_the_hosts() -> None:
    """20 rows with all filters, also where logits are equal; by the host's own arithmetic, in its order of sums."""
    filters = [Wanted(temperature=0.5 + seed % 3, seed=seed, top_k=9, top_p=0.8, min_p=0.02) for seed in range(12)]
    batch = make_batch(filters + [replace(one, top_k=0) for one in filters[:8]], 37, seed=5)
    logits = batch.logits.round()  # many ties
    logits[::2] = batch.logits[::2]
    batch = replace(batch, logits=logits)
    expected = [
        sampling_math.draw(
            row.numpy(),
            wish.temperature,
            wish.top_k,
            wish.top_p,
            wish.min_p,
            sampling_math.uniform(wish.seed, int(batch.lengths[slot])),
        )
        for row, slot in zip(logits, batch.slots.tolist(), strict=True)
        for wish in (batch.wanted[slot],)
    ]
    assert batch.on_device().token_ids.tolist() == expected


def test_the_references_token_is_the_hosts() -> None:
    """Each width with each filter, with and without equal logits, 20 times: two definitions, one with sorts in float64
    and one with float32 sums of blocks."""
    generator = torch.Generator().manual_seed(0)
    different = 0
    every = itertools.product((0.3, 2.0, 12.0), FILTERS, (False, True), range(20))
    for seed, (width, options, has_ties, _) in enumerate(every):
        logits = torch.randn(200, generator=generator) * width
        if has_ties:
            logits = (logits * 4).round() / 4
        place = sampling_math.uniform(seed, 11)
        host = sampling_math.draw(logits.numpy(), 0.9, *options, place)
        different += host != reference_sampling.drawn(logits.double(), 0.9, *options, place)
    assert different <= 1


def test_a_row_does_not_depend_on_the_others() -> None:
    batch = make_batch(ADJUSTED, 37, seed=9)
    together = batch.on_device()
    for row in range(len(batch.wanted)):
        alone = of_rows(batch, slice(row, row + 1))
        assert int(alone.on_device().token_ids) == int(together.token_ids[row])


def test_logits_are_left_as_they_are() -> None:
    batch = make_batch(ADJUSTED, 37)
    before = batch.logits.clone()
    batch.on_device()
    assert torch.equal(batch.logits, before)


def test_logits_may_lie_in_wider_rows() -> None:
    batch = make_batch(ADJUSTED[3:], 37)
    wide = torch.full((4, 48), math.nan)
    wide[:, :37] = batch.logits
    assert torch.equal(replace(batch, logits=wide[:, :37]).on_device().token_ids, batch.on_device().token_ids)


@pytest.mark.parametrize("damage", [math.nan, math.inf])
@pytest.mark.parametrize(
    "wanted", [MIXED[:3], ADJUSTED[3:6], (LOGPROBS[1],) * 3], ids=["mixed", "adjusted", "logprobs"]
)
def test_what_is_no_number_is_flagged_in_its_row_alone(damage: float, wanted: tuple[Wanted, ...]) -> None:
    batch = make_batch(wanted, 37)
    batch.logits[1, 30] = damage
    kernel_case.check(_case("damaged", set(), lambda: both(batch)))
    assert batch.on_device().broken.tolist() == [0, reference_sampling.MODEL, 0]


def test_only_minus_infinities_are_flagged_and_some_are_not() -> None:
    batch = make_batch((*MIXED[:4], *LOGPROBS[1:2]), 37)
    batch.logits[0] = -math.inf
    batch.logits[1:, 3:] = -math.inf
    assert batch.on_device().broken.tolist() == [1, 0, 0, 0, 0]
    assert (batch.on_device().token_ids < 3).all()


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_penalties_that_leave_nothing_are_flagged() -> None:
    batch = make_batch((Wanted(frequency_penalty=1.0), Wanted(logit_bias=((1, 3e38),))), 7)
    batch = replace(batch, slots=torch.arange(2), logits=torch.full((2, 7), 3e38))
    assert batch.on_device().broken.tolist() == [0, reference_sampling.ADJUSTED]


@pytest.mark.parametrize("wanted", [MIXED[1], ADJUSTED[3], ADJUSTED[5]], ids=["sampling", "penalty", "bias"])
def test_what_the_launch_left_out_is_flagged(wanted: Wanted) -> None:
    batch = make_batch((wanted, GREEDY), 37)
    batch = replace(batch, slots=torch.arange(2))
    got = batch.on_device(features=sampling.Features())
    assert got.broken.tolist() == [reference_sampling.MISLAUNCHED, 0]


def test_the_hosts_bits_make_the_place() -> None:
    for seed, position in ((0, 0), (-1, 5), (2**63 - 1, 131072), (-(2**63), 1), (12345678901, 77)):
        assert reference_sampling.uniform(seed, position) == sampling_math.uniform(seed, position)


def test_drawn_frequencies_follow_the_distribution() -> None:
    """Chi-square of the reference, with top-p and temperature, at a limit that chance passes once in 10^6."""
    logits = torch.randn(60, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    places = [reference_sampling.uniform(5, position) for position in range(3000)]
    drawn = torch.bincount(
        torch.tensor([reference_sampling.drawn(logits, 0.7, 0, 0.9, 0.0, place) for place in places]), minlength=60
    ).double()
    shares = torch.softmax(logits / 0.7, dim=0)
    order = torch.sort(shares, descending=True).indices
    kept = order[: int((shares[order].cumsum(0) < 0.9).sum()) + 1]
    expected = torch.zeros_like(shares)
    expected[kept] = shares[kept] / shares[kept].sum() * 3000
    assert drawn[expected == 0].sum() == 0
    statistic = float(((drawn - expected)[kept] ** 2 / expected[kept]).sum())
    degrees = kept.numel() - 1
    assert statistic < degrees + 5 * math.sqrt(2 * degrees) + 15


def _written(slot: int = 0, wanted: Wanted = GREEDY) -> None:
    sampling.Params(2, CPU).write(slot, wanted)


def _sampled(**changes: torch.Tensor) -> None:
    replace(make_batch(MIXED, 37), **changes).on_device()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (partial(_written, slot=2), "slot is 2, expected 0 to 1"),
        (partial(_written, wanted=Wanted(logit_bias=((1, 1.0), (1, 2.0)))), "2 entries for 1 tokens"),
        (
            partial(_written, wanted=Wanted(logit_bias=tuple((one, 1.0) for one in range(1025)))),
            "1025 entries .* expected at most 1024",
        ),
        (partial(_sampled, logits=torch.zeros(8, 37).half()), "logits are torch.float16"),
        (partial(_sampled, logits=torch.zeros(37, 8).T), r"with strides \(1, 8\)"),
        (partial(_sampled, logits=torch.zeros(8, 1)), "1 columns, expected 2 to"),
        (partial(_sampled, slots=torch.arange(3)), r"slots is int64 \[3\]"),
        (partial(_sampled, lengths=torch.arange(3)), r"lengths is int64 \[3\]"),
        (partial(_sampled, behind=torch.arange(3)), r"behind is int64 \[3\]"),
        (partial(_sampled, tokens=torch.zeros(8, 0, dtype=torch.int32)), "0 columns"),
    ],
)
def test_what_cannot_be_launched_says_why(act: Callable[[], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()


def test_results_and_memory_of_another_shape_are_refused() -> None:
    batch = make_batch(MIXED, 37)
    with pytest.raises(ValueError, match="workspace is for 3 rows"):
        batch.on_device(workspace=sampling.Workspace.allocate(3, 37, batch.features, CPU))
    with pytest.raises(ValueError, match="workspace is for 8 rows of 37"):
        batch.on_device(workspace=sampling.Workspace.allocate(8, 37, sampling.Features(), CPU))
    with pytest.raises(ValueError, match=r"out.token_ids is int64 \[3\]"):
        batch.on_device(out=sampling.empty_sampled(3, batch.features, CPU))
