"""Renders `docs/reference/engine-settings.md` from `config.py`: types, limits and the words beside each field.

The sentences are the strings that follow each field. Python does not keep those, so they are read from the syntax
tree of the module's source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping

from tidemark_runtime import config, config_parsing

_HEADER = """\
# Engine settings

<!-- Written by `make render` from runtime/tidemark_runtime/config.py. Change that file, not this one. -->

Every setting of one engine. In the file given to `tidemark serve --config FILE` a setting stands under its section,
in camelCase; on the command line it is the flag. A flag wins over the file. An unknown key or a wrong value stops the
start, and all wrong values are named at once. A list of mappings stands in the file only.

*Takes effect*: **restart** settings need a new engine process. **hot** settings change between two steps, all or
nothing and without touching requests in flight, by `PUT /admin/config` (see [the HTTP API](http-api.md)); the file is
read at the start only.
"""


def render() -> str:
    """The whole page. Raises `LookupError` when a field has no docstring."""
    words = field_docstrings()
    parts = [_HEADER]
    for section, entries in _by_section().items():
        cls = type(getattr(config.EngineConfig(), section))
        parts.append(f"## `{config_parsing.camel(section)}`\n\n{inspect.cleandoc(cls.__doc__ or '')}\n")
        parts.append("| setting | flag | accepts | default | takes effect | meaning |\n|---|---|---|---|---|---|")
        parts.extend(_row(entry, words[cls.__name__, entry.name]) for entry in entries)
        parts.append("")
        parts.extend(_items(entry, words) for entry in entries if config_parsing.item_class(entry) is not None)
    return "\n".join(parts)


def field_docstrings() -> Mapping[tuple[str, str], str]:
    """`(class name, field name)` -> the string that follows the field. Raises `LookupError` for a field without one."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(config)).body:
        if isinstance(node, ast.ClassDef):
            found.update({(node.name, name): text for name, text in _documented_fields(node)})
    for entry in config_parsing.entries():
        cls = type(getattr(config.EngineConfig(), entry.section))
        fields = [(cls, entry.name)]
        item = config_parsing.item_class(entry)
        if item is not None:
            fields += [(item, each.name) for each in config_parsing.item_entries(entry)]
        for owner, name in fields:
            if (owner.__name__, name) not in found:
                raise LookupError(f"{owner.__name__}.{name} in config.py has no docstring after it; write one")
    return found


def _documented_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield field.target.id, " ".join(following.value.value.split())


def _by_section() -> dict[str, list[config_parsing.Entry]]:
    sections: dict[str, list[config_parsing.Entry]] = {}
    for entry in config_parsing.entries():
        sections.setdefault(entry.section, []).append(entry)
    return sections


def _row(entry: config_parsing.Entry, words: str) -> str:
    return _cells(
        f"`{entry.key}`",
        _flag(entry),
        config_parsing.describe(entry),
        _default(entry),
        str(entry.setting.effect),
        words,
    )


def _items(entry: config_parsing.Entry, words: Mapping[tuple[str, str], str]) -> str:
    """The table of what one item of the list `entry` holds."""
    cls = config_parsing.item_class(entry)
    if cls is None:
        raise LookupError(f"{entry.key} is no list of mappings")
    rows = [
        _cells(f"`{each.key}`", config_parsing.describe(each), _default(each), words[cls.__name__, each.name])
        for each in config_parsing.item_entries(entry)
    ]
    head = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n| in each of `{entry.key}` | accepts | default | meaning |"
    return "\n".join([head, "|---|---|---|---|", *rows, ""])


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _flag(entry: config_parsing.Entry) -> str:
    if entry.setting.flag:
        return f"`--{entry.setting.flag}`"
    return "–" if config_parsing.item_class(entry) is not None else "(the argument MODEL)"


def _default(entry: config_parsing.Entry) -> str:
    if entry.default is None or entry.default in ("", ()):
        return "–"
    if entry.setting.size and entry.default % 2**20 == 0:
        return f"{entry.default // 2**20}Mi"
    return f"`{entry.default}`"
