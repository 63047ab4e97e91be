"""Renders `docs/reference/inferenceservice.md` from the models, so that the page cannot say anything else.

python -m tidemark_operator.api.reference > docs/reference/inferenceservice.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

from tidemark_operator import names
from tidemark_operator.api import describe, links, service

_HEAD = f"""# {names.KIND}

<!-- Rendered by tidemark_operator.api.reference; change the models, not this page. -->

`apiVersion: {names.API_VERSION}`, `kind: {names.KIND}`, short name `{names.SHORT_NAMES[0]}`, namespaced.
`metadata.name` has at most {names.MAX_NAME_LENGTH} characters of a-z, 0-9 and -, and begins with a letter.
A key without a value means the default. Unknown keys are errors.

A field marked ◌ is checked, but this version does not act on it yet; where it is set, `status.warnings` says so.
"""


def render(no_effect: Mapping[str, str]) -> str:
    """The page, ending with a line break. `no_effect`: path under `spec` -> what happens instead."""
    parts = [_HEAD, *_section("spec", service.Spec, no_effect), *_effects(no_effect)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(path: str, cls: type[pydantic.BaseModel], no_effect: Mapping[str, str]) -> Iterator[str]:
    """A table of the section's fields, then its subsections."""
    deeper: list[tuple[str, type[pydantic.BaseModel]]] = []
    rows = []
    for alias, info in describe.fields(cls).items():
        rows.append(f"| {_marked(path, alias, no_effect)} | {_accepts(info)} | {_default(info)} | {_text(info)} |")
        section, mark = _subsection(info)
        if section is not None:
            deeper.append((f"{path}.{alias}{mark}", section))
    yield f"## `{path}`\n\n{inspect.cleandoc(cls.__doc__ or '')}\n"
    yield "| field | accepts | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    for below, section in deeper:
        yield from _section(below, section, no_effect)


def _effects(no_effect: Mapping[str, str]) -> Iterator[str]:
    yield "## Without effect yet\n"
    yield (
        "| field | what happens instead |\n|---|---|\n"
        + "\n".join(f"| `spec.{path}` | {instead} |" for path, instead in no_effect.items())
        + "\n"
    )


def _marked(path: str, alias: str, no_effect: Mapping[str, str]) -> str:
    full = f"{path}.{alias}".removeprefix("spec.").replace("[]", "")
    parents = {full.rsplit(".", depth)[0] for depth in range(full.count(".") + 1)}
    return f"`{alias}`{' ◌' if parents & set(no_effect) else ''}"


def _subsection(info: FieldInfo) -> tuple[type[pydantic.BaseModel] | None, str]:
    hint, _ = describe.strip(info.annotation)
    if describe.is_model(hint):
        return hint, ""
    arguments: tuple[Any, ...] = getattr(hint, "__args__", ())
    if arguments and describe.is_model(arguments[0]):
        return arguments[0], "[]"
    return None, ""


def _accepts(info: FieldInfo) -> str:
    section, mark = _subsection(info)
    if section is not None:
        return "list of sections, see below" if mark else "section, see below"
    return describe.phrase(info.annotation, info.metadata).replace("|", "\\|")


def _default(info: FieldInfo) -> str:
    extra: dict[str, Any] = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    if info.is_required():
        return "**required**"
    if "default_text" in extra:
        return str(extra["default_text"])
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, pydantic.BaseModel):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _text(info: FieldInfo) -> str:
    extra: dict[str, Any] = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    unit = f" In {extra['unit']}." if "unit" in extra else ""
    effect = links.effect(info)
    return f"{info.description or ''}{unit}{f' {effect}' if effect else ''}"
