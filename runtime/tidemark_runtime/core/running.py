"""Who runs: all that hold a slot. Each decodes, or has more than one token to compute, or is being restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidemark_runtime.core import decoding, sequence


class Running:
    """By slot. What somebody does is in one of `decoding`, `prompting` and `restoring`."""

    def __init__(self, block_size: int) -> None:
        self.decoding = decoding.DecodeSet(block_size)
        self.prompting: list[sequence.Sequence] = []
        """With more than one token to compute, in the order of their turns."""
        self.restoring: list[sequence.Sequence] = []
        """Whose pages are being copied back."""
        self._by_slot: dict[int, sequence.Sequence] = {}
        self._num_of: dict[int, int] = {}
        """By priority."""

    def __len__(self) -> int:
        return len(self._by_slot)

    def __iter__(self) -> Iterator[sequence.Sequence]:
        return iter(self._by_slot.values())

    @property
    def least_priority(self) -> int | None:
        """Of all that run."""
        return min(self._num_of, default=None)

    def add(self, entry: sequence.Sequence) -> None:
        """`entry` has got a slot."""
        self._by_slot[entry.slot] = entry
        self._num_of[entry.priority] = self._num_of.get(entry.priority, 0) + 1

    def restore(self, entry: sequence.Sequence) -> None:
        """Copies of its pages begin."""
        entry.state = sequence.State.RESTORING
        self.restoring.append(entry)

    def join(self, entry: sequence.Sequence, step: int) -> None:
        """All that `entry` had computed is in its pages: it takes part from `step` on."""
        if entry.state is sequence.State.RESTORING:
            self.restoring.remove(entry)
        entry.state = sequence.State.RUNNING
        if entry.num_uncomputed == 1 and entry.num_sampled:
            self.decoding.enter(entry, step)
        else:
            self.prompting.append(entry)
            self.prompting.sort(key=lambda item: (-item.priority, item.order))

    def leave(self, entry: sequence.Sequence, last_step: int) -> None:
        """The last step that `entry` takes part in is `last_step`."""
        self.decoding.leave(entry, last_step)
        if entry in self.prompting:
            self.prompting.remove(entry)
        if entry.state is sequence.State.RESTORING:
            self.restoring.remove(entry)
        del self._by_slot[entry.slot]
        self._num_of[entry.priority] -= 1
        if not self._num_of[entry.priority]:
            del self._num_of[entry.priority]

    def num_tokens_computed(self, step: int) -> int:
        """Tokens in pages once steps up to `step` are done."""
        num_computed = self.decoding.num_tokens_read(step)
        if len(self.decoding) != len(self):  # the others are few
            num_computed += sum(entry.num_computed for entry in self if not entry.decoding_since)
        return num_computed

    def miscounted(self) -> str:
        """What does not add up; empty when all does."""
        by_priority = Counter(entry.priority for entry in self)
        return "" if by_priority == self._num_of else f"{by_priority} run by priority, counted were {self._num_of}"
