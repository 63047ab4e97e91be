"""What an expression of PromQL names: series, the labels it matches, and the labels it groups or joins by.

A tokenizer and one walk over its tokens: enough to know a metric from a function, a keyword or a label. Variables of
Grafana may stand in it as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|\#[^\n]*)
    | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    | (?P<variable>\$\{\w+(?::\w+)?\}|\$\w+|\[\[\w+\]\])
    | (?P<number>(?:\d+(?:ms|[smhdwy]))+|0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<operator>==|!=|>=|<=|=~|!~|[-+*/%^=<>(){}\[\],@:])
    """,
    re.VERBOSE,
)
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
"""Keywords after which labels stand in brackets."""
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "start", "end"}
_RELABELS = ("label_replace", "label_join")
"""Functions of which some arguments are names of labels: the second is made, and some after it are read."""


@dataclass(frozen=True, slots=True)
class Matcher:
    label: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """One mention of a series."""

    name: str
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """Everything that an expression names."""

    selectors: tuple[Selector, ...]
    grouped: frozenset[str]
    """Labels of `by`, `on` and the like."""
    made: frozenset[str]
    """Labels that `label_replace` and `label_join` put on."""
    read: frozenset[str]
    """Labels that these read."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def tokens(expr: str) -> Iterator[_Token]:
    """Raises ValueError for what is no PromQL."""
    at = 0
    while at < len(expr):
        found = _TOKEN.match(expr, at)
        if found is None:
            raise ValueError(f"no PromQL at {expr[at : at + 20]!r} of {expr!r}")
        at = found.end()
        if found.lastgroup != "space":
            yield _Token(str(found.lastgroup), found.group())


def named(expr: str) -> Named:
    """Raises ValueError for what is no PromQL."""
    reader = _Reader(list(tokens(expr)))
    reader.read()
    return Named(
        tuple(reader.selectors), frozenset(reader.grouped), frozenset(reader.made), frozenset(reader.read_labels)
    )


class _Reader:
    """Walks over the tokens once. `_calls` are the open brackets: a function's name, or nothing."""

    def __init__(self, found: list[_Token]) -> None:
        self._tokens = [*found, _Token("end", "")]
        self._at = 0
        self._calls: list[tuple[str, int]] = []
        self.selectors: list[Selector] = []
        self.grouped: set[str] = set()
        self.made: set[str] = set()
        self.read_labels: set[str] = set()

    def read(self) -> None:
        while self._next.kind != "end":
            token = self._take()
            if token.kind == "word":
                self._word(token.text)
            elif token.text == "{":
                self._selector("")
            elif token.text == "(":
                self._calls.append(("", 0))
            elif token.text == ")":
                if not self._calls:
                    raise ValueError("a bracket that was never opened")
                self._calls.pop()
            elif token.text == "[":
                self._skip_window()
            elif token.text == "," and self._calls:
                name, argument = self._calls[-1]
                self._calls[-1] = (name, argument + 1)
            elif token.kind == "string":
                self._argument(_unquoted(token.text))
        if self._calls:
            raise ValueError("a bracket that is never closed")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _word(self, word: str) -> None:
        if word.lower() in _LISTS:
            self._labels()
        elif word.lower() in _KEYWORDS:
            return
        elif self._next.text == "(":
            self._take()
            self._calls.append((word, 0))
        elif self._next.text == "{":
            self._take()
            self._selector(word)
        elif self._next.text.lower() in ("by", "without"):  # `sum by (x) (...)`; a series is never followed by these
            self._aggregation(word)
        else:
            self.selectors.append(Selector(word))

    def _aggregation(self, word: str) -> None:
        self._take()
        self._labels()
        if self._take().text != "(":
            raise ValueError(f"{word}: no expression after its labels")
        self._calls.append((word, 0))

    def _labels(self) -> None:
        if self._next.text != "(":
            return  # `group_left` alone
        self._take()
        while (token := self._take()).text != ")":
            if token.kind == "word":
                self.grouped.add(token.text)
            elif token.text != ",":
                raise ValueError(f"{token.text!r} among labels")

    def _selector(self, name: str) -> None:
        matchers = []
        while (token := self._take()).text != "}":
            if token.text == ",":
                continue
            operator, value = self._take(), self._take()
            if token.kind != "word" or value.kind != "string":
                raise ValueError(f"no matcher: {token.text} {operator.text} {value.text}")
            if token.text == "__name__":
                name = name or _unquoted(value.text)
            else:
                matchers.append(Matcher(token.text, operator.text, _unquoted(value.text)))
        for each in name.split("|"):
            self.selectors.append(Selector(each, tuple(matchers)))

    def _skip_window(self) -> None:
        while self._take().text != "]":
            if self._next.kind == "end":
                raise ValueError("a window that is never closed")

    def _argument(self, text: str) -> None:
        name, argument = self._calls[-1] if self._calls else ("", 0)
        if name not in _RELABELS:
            return
        if argument == 1:
            self.made.add(text)
        elif text and ((name == "label_replace" and argument == 3) or (name == "label_join" and argument > 2)):
            self.read_labels.add(text)


def _unquoted(text: str) -> str:
    return text[1:-1] if text[0] == "`" else re.sub(r"\\(.)", r"\1", text[1:-1])
