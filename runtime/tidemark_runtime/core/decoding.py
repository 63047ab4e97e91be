"""Sequences that get one token in every step, at no cost a step: a calendar says in which step something happens.

A member of the set computes its last token and samples the next one in each step. So which step needs another page
for it, and which step samples its last token, is known when it enters.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_runtime.core import sequence


class DecodeSet:
    """Members by slot, in the order in which they came."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._members: dict[int, sequence.Sequence] = {}
        self._need_page: dict[int, dict[int, sequence.Sequence]] = {}
        """Step -> who needs another page in it, by slot."""
        self._end: dict[int, dict[int, sequence.Sequence]] = {}
        """Step -> whose last token it samples, by slot."""
        self._slots: tuple[int, ...] | None = ()
        self._sequences: tuple[sequence.Sequence, ...] = ()
        self._sum_at_zero = 0
        """Tokens read in a step, were the members' counts carried back to step 0."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def slots(self) -> tuple[int, ...]:
        """The same object as long as nobody enters or leaves."""
        if self._slots is None:
            self._slots = tuple(self._members)
            self._sequences = tuple(self._members.values())
        return self._slots

    @property
    def sequences(self) -> tuple[sequence.Sequence, ...]:
        """In the order of `slots`."""
        return self._sequences if self._slots is not None else tuple(self._members.values())

    def enter(self, entry: sequence.Sequence, step: int) -> None:
        """`entry` decodes from `step` on; it has one token to compute and may sample at least one more."""
        entry.decoding_since = step
        entry.last_step = step + entry.params.max_tokens - entry.num_sampled - 1
        self._members[entry.slot] = entry
        self._sum_at_zero += entry.num_computed - step
        self._slots = None
        self._end.setdefault(entry.last_step, {})[entry.slot] = entry
        self._note_page(entry, step + len(entry.pages) * self._block_size - entry.num_computed)

    def leave(self, entry: sequence.Sequence, step: int) -> None:
        """`entry` has taken part in all steps up to and with `step`. Nothing happens when it is no member."""
        if entry.decoding_since:
            self._sum_at_zero -= entry.num_computed - entry.decoding_since
            num_steps = step - entry.decoding_since + 1
            entry.num_computed += num_steps
            entry.num_sampled += num_steps
            entry.decoding_since = 0
            del self._members[entry.slot]
            self._slots = None
            _strike(self._end, entry.last_step, entry)
            _strike(self._need_page, entry.next_page_step, entry)

    def needing_a_page(self, step: int) -> list[sequence.Sequence]:
        """Whose token of `step` has no page yet; each is asked for once a page, in order of priority and arrival."""
        found = self._need_page.pop(step, {}).values()
        return sorted(found, key=lambda entry: (-entry.priority, entry.order))

    def grown(self, entry: sequence.Sequence) -> None:
        """`entry` has got the page that it needed."""
        self._note_page(entry, entry.next_page_step + self._block_size)

    def ending(self, step: int) -> Iterable[sequence.Sequence]:
        """Who samples its last token in `step`."""
        return self._end.pop(step, {}).values()

    def num_computed(self, entry: sequence.Sequence, step: int) -> int:
        """Tokens of `entry`, member or not, that are in pages once steps up to `step` are done."""
        if not entry.decoding_since:
            return entry.num_computed
        return entry.num_computed + step - entry.decoding_since + 1

    def num_tokens_read(self, step: int) -> int:
        """KV tokens that the decodes of `step` read: each its whole context."""
        return self._sum_at_zero + len(self._members) * (step + 1)

    def _note_page(self, entry: sequence.Sequence, step: int) -> None:
        entry.next_page_step = step
        if step <= entry.last_step:
            self._need_page.setdefault(step, {})[entry.slot] = entry


def _strike(calendar: dict[int, dict[int, sequence.Sequence]], step: int, entry: sequence.Sequence) -> None:
    """Who has left is forgotten at once: a prompt of many tokens would stay in memory until that step."""
    day = calendar.get(step)
    if day is not None and day.pop(entry.slot, None) is not None and not day:
        del calendar[step]
