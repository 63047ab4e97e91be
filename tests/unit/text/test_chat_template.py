"""Chat templates: the environment they are written for, and bounds on what one may do."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.text import chat_messages, chat_template

MESSAGES = [{"role": "user", "content": "hi"}]
SMALL = chat_template.Limits(max_steps=1000, max_output_characters=1000)


def render(source: str, limits: chat_template.Limits | None = None, **options: Any) -> str:
    template = chat_template.ChatTemplate(source, {"bos_token": "<s>"}, "made", limits)
    return template.render(MESSAGES, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}", "<s>hi"),
        ("{% if true %}\n  {% set x = 1 %}\na{% endif %}\n", "a"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "hi"}]'),
        ("{{ '<a>&é' | tojson }}", '"<a>&é"'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=1, sort_keys=true) }}", '{\n "a": [\n  2\n ],\n "b": 1\n}'),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{{ loop.last }}{% endfor %}",
            "0False1False",
        ),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}", "True True True"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(1) }}{{ m(2) }}", "[1][2]"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
    ],
)
def test_templates_find_what_they_are_written_for(source: str, text: str) -> None:
    assert render(source) == text


def test_template_arguments_reach_the_template() -> None:
    source = "{{ add_generation_prompt }} {{ enable_thinking }} {{ tools[0].name }}"
    options: dict[str, Any] = {"add_generation_prompt": False, "tools": [{"name": "t"}]}
    assert render(source, template_kwargs={"enable_thinking": False}, **options) == "False False t"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_template_arguments_cannot_replace_the_messages(name: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=name):
        render("x", template_kwargs={name: 1})


def test_the_templates_own_refusal_is_the_message() -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        render("{{ raise_exception('Conversation roles must alternate') }}")
    assert str(caught.value) == "Conversation roles must alternate"
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ messages[0].missing.deeper }}", "no attribute 'missing'"),
        ("{{ messages[0]['content'] + 1 }}", "can only concatenate str"),
        ("{{ ().__class__.__bases__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% include 'other' %}", "cannot render"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_templates_and_messages_that_do_not_fit_are_a_clients_error(source: str, reason: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=reason):
        render(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for i in range(900) %}{% for j in range(900) %}{% endfor %}{% endfor %}", "1000 steps"),
        ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}", "1000 steps"),
        ("{% for i in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 40 }}{% endfor %}", "1000 steps"),
        ("{% for i in range(900) %}abc{% endfor %}", "1000 characters"),
        ("{{ 'a' * 2000 }}", "size 2000"),
        ("{{ 2000 * [1] }}", "size 2000"),
        ("{{ 2 ** 999999999999 }}", "size"),
        ("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", "size 1024"),
        ("{{ range(999999999) | list }}", "Range too big"),
    ],
)
def test_a_rendering_is_bounded(source: str, reason: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=reason):
        render(source, SMALL)


def test_each_rendering_counts_for_itself() -> None:
    template = chat_template.ChatTemplate("{% for i in range(900) %}{% endfor %}ok", {}, "made", SMALL)
    assert [template.render(MESSAGES) for _ in range(3)] == ["ok"] * 3


def test_a_template_that_cannot_be_compiled_is_refused_with_its_line() -> None:
    with pytest.raises(errors.UnsupportedModel, match=r"made: .* line 2: "):
        chat_template.ChatTemplate("{% if x %}\n{% endfor %}", {}, "made")


def test_content_parts_become_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert chat_messages.normalize([{"role": "user", "content": parts}]) == [{"role": "user", "content": "one\ntwo"}]


def test_null_keys_are_dropped_and_tool_arguments_parsed() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    plain = chat_messages.normalize([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert plain == [{"role": "assistant", "tool_calls": [{**call, "function": {"name": "f", "arguments": {"a": 1}}}]}]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"content": "x"}, "messages[0]"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0]"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_wrong_messages_name_their_place(message: dict[str, Any], place: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        chat_messages.normalize([message])
    assert caught.value.param == place
    assert str(caught.value).startswith(place)


def test_no_messages_are_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="at least one"):
        chat_messages.normalize([])
