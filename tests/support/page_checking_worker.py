"""A worker without tensors that notices every mistake with pages.

It keeps token ids in the pages themselves, as KV memory would keep keys and values, and derives the next token from
what it reads back through the page table. A page that was handed out twice, lost, or not copied changes the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface

VOCABULARY = 1000


def next_token(tokens: Sequence[int]) -> int:
    """What this model says after `tokens`."""
    digest = hashlib.blake2b(repr(list(tokens)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % VOCABULARY


def solo(prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int] = ()) -> list[int]:
    """What a request gets when it is alone."""
    tokens, output = list(prompt), []
    while len(output) < max_tokens:
        output.append(next_token(tokens))
        tokens.append(output[-1])
        if output[-1] in stop_token_ids:
            break
    return output


class PageCheckingWorker:
    def __init__(self, *, num_pages: int, block_size: int, max_num_seqs: int, max_context_tokens: int = 2048) -> None:
        self._block_size = block_size
        self._pages: dict[tuple[int, int], int] = {}
        self._tables: list[list[int]] = [[] for _ in range(max_num_seqs)]
        self._tokens: list[list[int]] = [[] for _ in range(max_num_seqs)]
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
        )

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        self.plans.append(plan)
        for join in plan.joins:
            self._tables[join.slot] = []
            self._tokens[join.slot] = list(join.token_ids)
        sampled = [self._compute(chunk) for chunk in plan.chunks]
        tokens = tuple(token for token in sampled if token is not None)
        return step_plan.StepResult(plan.step, tokens, (None,) * len(tokens), 0.0)

    def close(self) -> None:
        self.closed = True

    def _compute(self, chunk: step_plan.Chunk) -> int | None:
        table, tokens = self._tables[chunk.slot], self._tokens[chunk.slot]
        table.extend(chunk.new_pages)
        end = chunk.start + chunk.count
        for position in range(chunk.start, end):
            self._pages[self._place(table, position)] = tokens[position]
        if not chunk.samples:
            return None
        token = next_token([self._pages[self._place(table, position)] for position in range(end)])
        tokens.append(token)
        return token

    def _place(self, table: list[int], position: int) -> tuple[int, int]:
        return table[position // self._block_size], position % self._block_size
