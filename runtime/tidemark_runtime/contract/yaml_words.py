"""What a YAML parser complains of, in one sentence: its own words take several lines and mark the place with a `^`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import yaml

_ENDS = "the end of the text"
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "'<stream end>'": _ENDS,
        "unexpected end of stream": _ENDS,
        "'<scalar>'": "text",
        "'<block mapping start>'": "a mapping",
        "'<block sequence start>'": "a list",
        "'<document start>'": "a new document (---)",
        "<block end>": "an end by less indentation",
        "a flow mapping": "a mapping in { }",
        "a flow sequence": "a list in [ ]",
        "a block mapping": "a mapping",
        "a block collection": "a list",
        "a quoted scalar": "a quoted text",
    }
)
"""PyYAML's terms, and ours."""
_TEMPLATE = "Is it a template with {{ }} that was not filled in? Fill it in first."


def sentence(error: Exception, text: str = "") -> str:
    """`line 2, column 27: not valid YAML: expected ...`, and what to do where that is known. `text` is what was parsed,
    where it is at hand; an error that is not the parser's is given in its own words."""
    if isinstance(error, yaml.reader.ReaderError) and text:
        before = text[: error.position]
        place = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
        return f"{place}: not valid YAML: it has the control character U+{ord(text[error.position]):04X}. Remove it."
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}."
    mark = error.problem_mark or error.context_mark
    at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem, remedy = _in_words(error)
    return f"{at}not valid YAML: {problem}.{remedy and ' '}{remedy}"


def _in_words(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """What is wrong, and what to do where that is known."""
    problem = str(error.problem)
    if "\\t" in problem:
        return problem, "Indent with spaces, not tabs."
    if problem == "found unhashable key":
        return "a key is a list or a mapping, expected text", _TEMPLATE
    if problem == "but found another document":
        return "a second document begins, expected one", "Remove one of them."
    unknown = problem.partition("could not determine a constructor for the tag ")[2]
    if unknown:
        return f"the tag {unknown} is not known", "Remove it."
    problem = _named(problem.replace(", but found ", ", but got "))
    if problem == f"found {_ENDS}":
        problem = f"expected a closing quotation mark, but got {_ENDS}"
    began = str(error.context or "").removeprefix("while parsing ").removeprefix("while scanning ")
    if error.context_mark is not None and error.context_mark is not error.problem_mark and began != error.context:
        start = error.context_mark
        problem += f", in {_named(began)} that begins in line {start.line + 1}, column {start.column + 1}"
    return problem, "Is it cut off?" if _ENDS in problem else ""


def _named(words: str) -> str:
    for theirs, ours in _NAMES.items():
        words = words.replace(theirs, ours)
    return words
