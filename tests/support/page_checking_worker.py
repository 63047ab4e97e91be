"""A worker without tensors that notices every mistake with pages.

Where KV memory keeps keys and values, it keeps a digest: of a token, and of the digests of all tokens before it, read
back through the page table. So it takes over the one property that matters: what a page holds depends on everything
before it. A page that was handed out twice, lost, copied too early, found under a wrong prefix or not copied at all
changes the text, or is an error at once where nothing was ever written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface

VOCABULARY = 1000

Cells = list[bytes]
"""One page: a digest for each token, empty where none was written."""


class WrongPlan(AssertionError):
    """The plan cannot be what a scheduler meant."""


class _Context:
    """The digests of all tokens so far, as one running hash."""

    def __init__(self, cells: Iterable[bytes] = ()) -> None:
        self._hash = hashlib.blake2b(b"".join(cells), digest_size=8)

    def compute(self, token: int) -> bytes:
        """What a page keeps of `token` here."""
        one = self._hash.copy()
        one.update(b"token %d" % token)
        cell = one.digest()
        self._hash.update(cell)
        return cell

    def next_token(self) -> int:
        return int.from_bytes(self._hash.digest()) % VOCABULARY


def next_token(tokens: Sequence[int]) -> int:
    """What this model says after `tokens`."""
    context = _Context()
    for token in tokens:
        context.compute(token)
    return context.next_token()


def solo(prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int] = ()) -> list[int]:
    """What a request gets when it is alone."""
    context, output = _Context(), list[int]()
    for token in prompt:
        context.compute(token)
    while len(output) < max_tokens:
        output.append(context.next_token())
        context.compute(output[-1])
        if output[-1] in stop_token_ids:
            break
    return output


class PageCheckingWorker:
    """Does what a plan says, literally and in the documented order. Raises WrongPlan where that makes no sense."""

    def __init__(
        self,
        *,
        num_pages: int,
        block_size: int,
        max_num_seqs: int,
        max_context_tokens: int = 2048,
        num_host_pages: int = 0,
        page_copy_seconds: float = 0.0,
    ) -> None:
        self._block_size = block_size
        self._pages: list[Cells] = [[b""] * block_size for _ in range(num_pages)]
        self._host_pages: list[Cells] = [[b""] * block_size for _ in range(num_host_pages)]
        self._tables: list[list[int]] = [[] for _ in range(max_num_seqs)]
        self._tokens: list[list[int]] = [[] for _ in range(max_num_seqs)]
        self._last_step: int | None = None
        self.plans: list[step_plan.StepPlan] = []
        self.closed = False
        self.facts = interface.WorkerFacts(
            kind="page-checking",
            device="none",
            dtype="float32",
            layout=page_layout.PageLayout(page_layout.KVShape(1, 1, 8), block_size, "float32"),
            num_pages=num_pages,
            max_context_tokens=max_context_tokens,
            memory_bytes={},
            num_host_pages=num_host_pages,
            page_copy_seconds=page_copy_seconds,
        )

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        self.plans.append(plan)
        self._check(plan)
        self._copy(plan.swaps_out, self._pages, self._host_pages, lambda copy: (copy.page, copy.host_page))
        self._copy(plan.swaps_in, self._host_pages, self._pages, lambda copy: (copy.host_page, copy.page))
        for join in plan.joins:
            self._tables[join.slot] = []
            self._tokens[join.slot] = list(join.token_ids)
            self._append_pages(join.slot, join.pages)
        for added in plan.new_pages:
            self._append_pages(added.slot, added.pages)
        tokens = list(self._compute([*map(self._decode, plan.decodes), *plan.chunks]))
        verified = []
        for verification in plan.verifications:
            found = self._verify(verification)
            verified.append(step_plan.Verified(verification.count, len(found)))
            tokens += found
        seconds = (len(plan.swaps_out) + len(plan.swaps_in)) * self.facts.page_copy_seconds
        return step_plan.StepResult(
            plan.step, tuple(tokens), (None,) * len(tokens), seconds, seconds, verified=tuple(verified)
        )

    def close(self) -> None:
        self.closed = True

    def _check(self, plan: step_plan.StepPlan) -> None:
        """What can be seen without looking into pages."""
        _require(self._last_step is None or plan.step > self._last_step, plan, "comes after a later step")
        self._last_step = plan.step
        computing = [*plan.decodes, *(each.slot for each in (*plan.chunks, *plan.verifications))]
        slots = [*computing, *(join.slot for join in plan.joins), *(added.slot for added in plan.new_pages)]
        _require(bool(slots or plan.swaps_out or plan.swaps_in), plan, "holds nothing")
        _require(all(0 <= slot < len(self._tables) for slot in slots), plan, "names a slot that there is not")
        _require(len(set(computing)) == len(computing), plan, "computes twice in a slot")
        joining = [join.slot for join in plan.joins]
        _require(len(set(joining)) == len(joining), plan, "lets two sequences join in a slot")

    def _copy(
        self,
        copies: Sequence[step_plan.Copy],
        sources: list[Cells],
        targets: list[Cells],
        ends: Callable[[step_plan.Copy], tuple[int, int]],
    ) -> None:
        written = [ends(copy)[1] for copy in copies]
        _require(len(set(written)) == len(written), copies, "write twice to a page")
        for copy in copies:
            source, target = ends(copy)
            _require(0 <= source < len(sources) and 0 <= target < len(targets), copy, "names a page that there is not")
            _require(sources[source][0] != b"", copy, "takes from a page that nobody wrote to")
            targets[target] = list(sources[source])

    def _append_pages(self, slot: int, pages: Sequence[int]) -> None:
        table = self._tables[slot]
        table.extend(pages)
        _require(all(0 <= page < len(self._pages) for page in pages), pages, "are not all pages of the slab")
        _require(len(set(table)) == len(table), table, "holds a page twice")

    def _decode(self, slot: int) -> step_plan.Chunk:
        """The chunk that a decode comes to."""
        return step_plan.Chunk(slot, len(self._tokens[slot]) - 1, 1, samples=True)

    def _compute(self, chunks: Sequence[step_plan.Chunk]) -> tuple[int, ...]:
        """Everybody reads before anybody writes: what a step computes cannot be relied on by others of that step."""
        contexts = [self._read(chunk) for chunk in chunks]
        written: set[tuple[int, int]] = set()
        sampled = []
        for chunk, context in zip(chunks, contexts, strict=True):
            table, tokens = self._tables[chunk.slot], self._tokens[chunk.slot]
            for position in range(chunk.start, chunk.start + chunk.count):
                page, row = table[position // self._block_size], position % self._block_size
                _require((page, row) not in written, chunk, f"writes where another of this step writes, page {page}")
                written.add((page, row))
                self._pages[page][row] = context.compute(tokens[position])
            if chunk.samples:
                sampled.append(context.next_token())
                tokens.append(sampled[-1])
        return tuple(sampled)

    def _verify(self, verification: step_plan.Verification) -> list[int]:
        """Writes all guesses' digests to their pages, right or wrong, as a worker does; returns the tokens."""
        slot, guesses = verification.slot, self._guesses(verification)
        _require(len(guesses) == verification.count > 0, verification, "has another number of guesses")
        table, tokens, size = self._tables[slot], self._tokens[slot], self._block_size
        length = len(tokens)
        _require(length + len(guesses) <= len(table) * size, verification, f"has {len(table)} pages of {size}")
        context = self._read(step_plan.Chunk(slot, length - 1, 1, samples=True))
        sampled: list[int] = []
        is_right = True
        for position, token in enumerate([tokens[-1], *guesses], length - 1):
            self._pages[table[position // size]][position % size] = context.compute(token)
            if is_right:
                sampled.append(context.next_token())
                is_right = position - length + 1 < len(guesses) and guesses[position - length + 1] == sampled[-1]
        tokens += sampled
        return sampled

    def _guesses(self, verification: step_plan.Verification) -> tuple[int, ...]:
        """Where the plan leaves them to a draft model: right or wrong, by the text."""
        if verification.guesses:
            return verification.guesses
        text = list(self._tokens[verification.slot])
        guesses = []
        for _ in range(verification.count):
            token = next_token(text)
            guesses.append(token if token % 4 else token + 1)
            text.append(guesses[-1])
        return tuple(guesses)

    def _read(self, chunk: step_plan.Chunk) -> _Context:
        """What pages hold of the tokens before `chunk`."""
        table, size = self._tables[chunk.slot], self._block_size
        length, start, end = len(self._tokens[chunk.slot]), chunk.start, chunk.start + chunk.count
        _require(0 <= start < end <= length, chunk, f"is not within {length} tokens")
        _require(chunk.samples == (end == length), chunk, f"samples after its last known token only, {length} known")
        _require(end <= len(table) * size, chunk, f"has {len(table)} pages of {size}")
        before = [cell for page in table[: -(-start // size)] for cell in self._pages[page]][:start]
        _require(all(before), chunk, f"reads what nobody wrote, {before.count(b'')} of {start} tokens")
        return _Context(before)


def _require(holds: bool, what: object, problem: str) -> None:
    if not holds:
        raise WrongPlan(f"{what} {problem}")
