"""Renders chat messages to text with the model's own jinja2 template, in a sandbox.

The environment is the one Hugging Face templates are written for: trim_blocks, lstrip_blocks, loop controls, `tojson`
without HTML escaping, `raise_exception`, `strftime_now`, and `{% generation %}` blocks, which change nothing here.

A template comes with a model, from people a site trusts more than its clients, but it must not take the server down
by accident. A rendering is bounded in steps (loop rounds and macro calls), in the size of its output and of any text
it multiplies or adds up, and `range` in length. Filters that blow up one value are not bounded.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox

from tidemark_runtime import errors

MAX_STEPS = 250_000
"""Loop rounds and macro calls of one rendering: a tenth of a second of empty rounds, a few seconds of macro calls."""
MAX_OUTPUT_CHARACTERS = 32 * 1024 * 1024
_STEP = "_tidemark_step"
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", _STEP})
# What rendering raises when a template and the messages do not go together; the template is data to us.
_RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one rendering."""

    max_steps: int = MAX_STEPS
    max_output_characters: int = MAX_OUTPUT_CHARACTERS


class ChatTemplate:
    """A compiled template. Safe to use from several threads at once."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], origin: str, limits: Limits | None = None
    ) -> None:
        """`special_tokens`: `bos_token` and the like, for the template to write; `origin` names it in messages.

        Raises UnsupportedModel when the template cannot be compiled.
        """
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._limits = limits or Limits()
        try:
            self._template = _environment(self._limits).from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise errors.UnsupportedModel(
                f"{origin}: the chat template cannot be compiled: line {error.lineno}: {error.message}"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render messages that `chat_messages.normalize` has prepared.

        Raises InvalidRequest with the template's own message when it refuses them, or when a bound is passed.
        """
        extra = dict(template_kwargs or {})
        for name in _RESERVED & extra.keys():
            raise errors.InvalidRequest(
                f"chat_template_kwargs: got {name!r}, which the server sets itself, expected other names",
                param="chat_template_kwargs",
            )
        variables = {
            **self._special_tokens,
            "documents": None,
            **extra,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            _STEP: _StepCounter(self._limits.max_steps),
        }
        try:
            return self._joined(variables)
        except _TemplateRefused as error:
            raise errors.InvalidRequest(str(error), param="messages") from error
        except _RENDER_ERRORS as error:
            raise errors.InvalidRequest(
                f"the model's chat template cannot render these messages: {error}", param="messages"
            ) from error

    def _joined(self, variables: dict[str, Any]) -> str:
        pieces: list[str] = []
        num_characters = 0
        for piece in self._template.generate(variables):
            num_characters += len(piece)
            if num_characters > self._limits.max_output_characters:
                raise jinja2.TemplateError(f"it writes more than {self._limits.max_output_characters} characters")
            pieces.append(piece)
        return "".join(pieces)


class _TemplateRefused(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _StepCounter:
    """Counts one rendering's loop rounds and macro calls."""

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._num_steps = 0

    def count(self) -> None:
        self._num_steps += 1
        if self._num_steps > self._max_steps:
            raise jinja2.TemplateError(f"it takes more than {self._max_steps} steps")


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A sandbox whose loops and macros count, and whose operators do not make huge values."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols], cache_size=0
        )
        self._limits = limits

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        template = super()._parse(source, name, filename)
        repeated: list[jinja2.nodes.For | jinja2.nodes.Macro] = [*template.find_all(jinja2.nodes.For)]
        repeated += template.find_all(jinja2.nodes.Macro)
        for node in repeated:
            # Counted inside the body, so that recursive loops and macros count as well.
            node.body.insert(0, _step_node(node.lineno, self))
        return template

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        size = _result_size(operator, left, right)
        if size > self._limits.max_output_characters:
            raise jinja2.TemplateError(f"{operator!r} would make a value of size {size}")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's part for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _step_node(line: int, environment: jinja2.Environment) -> jinja2.nodes.Node:
    # A filter, because the sandbox checks every call of a variable, which costs ten times as much.
    count = jinja2.nodes.Filter(jinja2.nodes.Name(_STEP, "load"), _STEP, [], [], None, None)
    return jinja2.nodes.ExprStmt(count).set_lineno(line, override=True).set_environment(environment)


def _result_size(operator: str, left: Any, right: Any) -> int:
    """How large a result would be: characters, items, or decimal digits of a power; 0 where it cannot be large."""
    if operator == "**":
        both_whole = isinstance(left, int) and isinstance(right, int) and right > 0
        return int(left).bit_length() * right if both_whole else 0
    if operator == "*":
        sized, count = (right, left) if isinstance(left, int) else (left, right)
        return len(sized) * count if isinstance(sized, str | list | tuple) and isinstance(count, int) else 0
    same = isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple)
    return len(left) + len(right) if same else 0


def _environment(limits: Limits) -> _Environment:
    environment = _Environment(limits)
    environment.filters["tojson"] = _to_json
    environment.filters[_STEP] = _StepCounter.count
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> None:
    raise _TemplateRefused(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
