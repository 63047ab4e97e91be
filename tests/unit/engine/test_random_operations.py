"""Whatever comes, in whatever order: sums are right, everybody ends once, and with the text it gets alone."""

from __future__ import annotations

from dataclasses import dataclass

from engine_bench import Bench, Finish, per_token, prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime import config

LONG_TOKENS = 90


@dataclass(frozen=True)
class Add:
    length: int
    max_tokens: int
    shared: int
    """Tokens of a beginning that others have, too."""
    family: int
    priority: int
    tenant: int
    is_retry: bool
    choices: int
    stop: int
    deadline: float | None


@dataclass(frozen=True)
class Abort:
    number: int


@dataclass(frozen=True)
class Steps:
    number: int


@dataclass(frozen=True)
class Later:
    seconds: float


@dataclass(frozen=True)
class Change:
    name: str
    value: object


Operation = Add | Abort | Steps | Later | Change

CHANGES: dict[str, list[object]] = {
    "max_num_batched_tokens": [1, 7, 24, 100],
    "target_step_seconds": [None, 0.004, 0.02],
    "max_concurrency_soft": [None, 1, 3],
    "queue_watermark": [0.0, 0.4, 0.7, 0.9],
    "preempt_watermark": [0.9, 1.0],
    "watermark_hysteresis": [0.0, 0.2],
    "long_request_tokens": [1, LONG_TOKENS, 1000],
    "long_request_share": [0.0, 0.5, 1.0],
    "aging_seconds": [0.0, 0.5, 100.0],
    "fairness": ["none", "apiKey"],
    "preemption_mode": ["auto", "swap", "recompute"],
    "max_queued_requests": [0, 2, 100],
    "max_queued_tokens": [None, 150],
    "max_queue_seconds": [1.0, 600.0],
    "retry_share": [0.0, 0.5],
}

ADDS = st.builds(
    Add,
    length=st.one_of(st.integers(1, 40), st.integers(60, 150)),
    max_tokens=st.one_of(st.integers(1, 12), st.integers(20, 110)),
    shared=st.sampled_from([0, 0, 16, 33, 64]),
    family=st.integers(0, 1),
    priority=st.integers(0, 2),
    tenant=st.integers(0, 1),
    is_retry=st.booleans(),
    choices=st.sampled_from([1, 1, 1, 3]),
    stop=st.integers(0, 20),
    deadline=st.sampled_from([None, None, None, 0.05, 3.0]),
)
OPERATIONS = st.lists(
    st.one_of(
        ADDS,
        ADDS,
        st.builds(Steps, st.integers(1, 15)),
        st.builds(Steps, st.integers(1, 15)),
        st.builds(Abort, st.integers(0, 30)),
        st.builds(Later, st.sampled_from([0.1, 0.6, 2.0])),
        st.sampled_from([Change(name, value) for name, values in CHANGES.items() for value in values]),
    ),
    min_size=1,
    max_size=50,
)


def add(bench: Bench, wanted: Add) -> None:
    number = len(bench.records)
    requests = []
    for choice in range(wanted.choices):
        text = [*prompt(150, wanted.family)[: wanted.shared], *prompt(wanted.length, 100 + number + choice)]
        requests.append((f"r{number + choice}", text, wanted.max_tokens))
    bench.submit_all(
        requests,
        priority=wanted.priority,
        tenant=str(wanted.tenant),
        is_retry=wanted.is_retry,
        deadline_seconds=wanted.deadline,
        stop_token_ids=(wanted.stop * 50,),
    )


def change(bench: Bench, wanted: Change) -> None:
    """A soft limit under what runs is refused, which is tested elsewhere; so it is not asked for here."""
    running = bench.stats.requests_running
    if wanted.name != "max_concurrency_soft" or not isinstance(wanted.value, int) or wanted.value >= running:
        bench.configure(**{wanted.name: wanted.value})


def guessing(tokens: int) -> config.SpeculativeConfig | None:
    """By a draft model that is right three times of four; None for no tokens."""
    return config.SpeculativeConfig(method="draft", tokens=tokens, draft_model="small") if tokens else None


def do(bench: Bench, operation: Operation) -> None:
    match operation:
        case Add():
            add(bench, operation)
        case Abort(number):
            bench.abort(f"r{number}")
        case Steps(number):
            bench.step(number)
        case Later(seconds):
            bench.now += seconds
        case Change():
            change(bench, operation)
    bench.engine.check_integrity()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    operations=OPERATIONS,
    block_size=st.sampled_from([1, 4, 16]),
    tokens=st.integers(16, 400),
    host_tokens=st.sampled_from([0, 64, 400]),
    page_copy_seconds=st.sampled_from([0.00001, 0.001]),
    prefix_caching=st.booleans(),
    overlap=st.booleans(),
    bound=st.integers(0, 3),
    soft=st.sampled_from([None, 2]),
    guesses=st.sampled_from([0, 1, 3, 8]),
    guess_seconds=st.sampled_from([0.00001, 0.0004]),
)
def test_whatever_comes_each_request_ends_once_and_as_alone(
    operations: list[Operation],
    block_size: int,
    tokens: int,
    host_tokens: int,
    page_copy_seconds: float,
    prefix_caching: bool,
    overlap: bool,
    bound: int,
    soft: int | None,
    guesses: int,
    guess_seconds: float,
) -> None:
    num_host_pages = host_tokens // block_size
    bench = Bench(
        num_pages=max(1, tokens // block_size),
        block_size=block_size,
        num_host_pages=num_host_pages,
        page_copy_seconds=page_copy_seconds if num_host_pages else 0.0,
        prefix_caching=prefix_caching,
        overlap=overlap,
        step_seconds=per_token(0.001, decode=0.0002, prompt_token=0.0001, guess=guess_seconds),
        speculative=guessing(guesses),
        max_num_seqs=4,
        max_num_batched_tokens=24,
        max_queued_requests=8,
        max_concurrency_soft=soft,
        max_preemptions_per_request=bound,
        long_request_tokens=LONG_TOKENS,
        aging_seconds=1.0,
    )
    for operation in operations:
        do(bench, operation)
    bench.run(20_000)
    bench.check_all_as_alone()
    bench.check_baseline()
    for record in bench.records.values():
        assert record.num_preemptions <= bound
        if record.finish is Finish.REJECTED:
            assert record.reject is not None
            assert record.message
        elif record.finish in (Finish.LENGTH, Finish.STOP):
            assert record.join_steps, "who ends has run"
    if not prefix_caching:
        assert bench.stats.pages_cached == bench.stats.prefix_hit_tokens_total == 0
    stats = bench.stats
    assert stats.resumes_total <= stats.preemptions_total
    assert stats.swapped_in_pages_total <= stats.swapped_out_pages_total
    assert not stats.preemptions_swap_total or num_host_pages
