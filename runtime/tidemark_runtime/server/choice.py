"""One choice of an answer: tokens come in, text that may be shown goes out.

Held back are only the bytes of an unfinished character and a tail that could begin a stop string; both come out
with the last delta unless a stop string swallowed them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_runtime.core import step_plan
from tidemark_runtime.engine import messages
from tidemark_runtime.server import outcomes
from tidemark_runtime.text import detokenizer, stop_strings, text_model


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token that is part of the text, with its log-probabilities."""

    token_id: int
    offset: int
    """Where it begins in the generated text, in characters."""
    logprobs: step_plan.TokenLogprobs


@dataclass(slots=True)
class Delta:
    """What is new of one choice."""

    index: int
    text: str = ""
    entries: list[TokenEntry] = field(default_factory=list)
    finish: str | None = None


class Choice:
    """Turns one sequence's outputs into deltas."""

    def __init__(
        self,
        index: int,
        text: text_model.TextModel,
        prompt_ids: tuple[int, ...],
        stops: stop_strings.Stops,
        hidden_ids: frozenset[int],
    ) -> None:
        self.index = index
        self.finish: str | None = None
        self.stopped_by_text = False
        """True when a stop string ended it, so that the engine has to be told."""
        self.num_tokens = 0
        """Generated, the one that ended it included."""
        self.num_cached_tokens = 0
        self._detokenizer = detokenizer.Detokenizer(text, prompt_ids)
        self._matcher = stop_strings.StopMatcher(stops)
        self._hidden_ids = hidden_ids
        self._num_chars = 0
        self._num_shown_chars = 0
        self._entries: list[TokenEntry] = []

    def add(self, output: messages.SequenceOutput, delta: Delta) -> None:
        """Put what `output` brings into `delta`. The output's end, if it has one, must be STOP or LENGTH."""
        self.num_cached_tokens = max(self.num_cached_tokens, output.num_cached_tokens)
        finish = output.finish
        shown, stopped = self._add_tokens(output)
        if stopped:
            self.stopped_by_text = finish is None
            finish = messages.FinishReason.STOP
        elif finish is not None:
            tail, stopped = self._flush()
            shown += tail
        self._show(shown, delta, everything=finish is not None and not stopped)
        if finish is not None:
            self.finish = delta.finish = outcomes.FINISH_WORDS[finish]

    def _add_tokens(self, output: messages.SequenceOutput) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string was completed. Later tokens are dropped then."""
        shown = ""
        last = len(output.token_ids) - 1
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            ended_here = position == last and output.finish is messages.FinishReason.STOP
            if ended_here and token_id in self._hidden_ids:
                continue
            text, stopped = self._add_token(token_id, output.logprobs[position])
            shown += text
            if stopped:
                return shown, True
        return shown, False

    def _add_token(self, token_id: int, logprobs: step_plan.TokenLogprobs | None) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string was completed."""
        offset = self._num_chars
        piece = self._detokenizer.add([token_id])
        self._num_chars += len(piece)
        if logprobs is not None:
            self._entries.append(TokenEntry(token_id, offset, logprobs))
        text, matched = self._matcher.add(piece)
        return text, matched is not None

    def _flush(self) -> tuple[str, bool]:
        text, matched = self._matcher.add(self._detokenizer.flush())
        return (text, True) if matched is not None else (text + self._matcher.flush(), False)

    def _show(self, text: str, delta: Delta, *, everything: bool) -> None:
        """Entries go out with their text: one whose text was swallowed by a stop string never does."""
        delta.text += text
        self._num_shown_chars += len(text)
        waiting: list[TokenEntry] = []
        for entry in self._entries:
            (delta.entries if everything or entry.offset < self._num_shown_chars else waiting).append(entry)
        self._entries = waiting
