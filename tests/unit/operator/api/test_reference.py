"""The reference page says what the models say, and the models accept what the engine accepts."""

from __future__ import annotations

import typing
from pathlib import Path

import pydantic
import pytest

from tidemark_operator import api, effects
from tidemark_operator.api import base, describe, engine, quantities, service
from tidemark_operator.commands import reference
from tidemark_runtime import config_parsing
from tidemark_runtime.contract import settings
from tidemark_runtime.server import key_lines

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs/reference/inferenceservice.md"

ENGINE = {entry.key: entry for entry in settings.entries()}
LINKED = {link.path: link.key for link in api.engine_links()}
OUR_DEFAULT = {"model.name", "overload.degrade"}
"""An absent value means something else than the engine's own default, or is no single value."""


def field(path: str) -> tuple[object, list[object], object]:
    hint, metadata, info = describe.hint_at(service.Spec, path.split("."))
    assert info is not None
    return hint, metadata, info.get_default(call_default_factory=True)


def test_the_checked_in_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.page()


def limits(metadata: list[object]) -> tuple[object, object]:
    bounds = {type(item).__name__: item for item in metadata}
    return getattr(bounds.get("Ge"), "ge", None), getattr(bounds.get("Le"), "le", None)


@pytest.mark.parametrize(("path", "key"), LINKED.items())
def test_ranges_are_those_of_the_engine(path: str, key: str) -> None:
    hint, metadata, _ = field(path)
    setting = ENGINE[key].setting
    if setting.choices:
        assert {choice for choice in typing.get_args(hint) if effects.acts(path, choice)} == set(setting.choices)
    elif not setting.size and typing.get_origin(hint) is not list:
        assert limits(metadata) == (setting.minimum, setting.maximum)
        assert hint in (ENGINE[key].type, *typing.get_args(ENGINE[key].type))


@pytest.mark.parametrize("path", sorted(LINKED.keys() - OUR_DEFAULT))
def test_defaults_are_those_of_the_engine_or_the_page_says_them(path: str) -> None:
    default, entry = field(path)[2], ENGINE[LINKED[path]]
    if default is not None:
        assert (quantities.to_bytes(str(default)) if entry.setting.size else default) == entry.default
    elif entry.default is not None:
        assert default_text(path) == f"the engine's: {entry.default:g}"
    else:
        assert default_text(path)


def default_text(path: str) -> object:
    _, _, info = describe.hint_at(service.Spec, path.split("."))
    assert info is not None
    assert isinstance(info.json_schema_extra, dict)
    return info.json_schema_extra["default_text"]


def test_a_drain_lasts_as_long_as_the_engines_does_by_default() -> None:
    assert field("rollout.drainSeconds")[2] == ENGINE["server.drainSeconds"].default


def test_a_rule_of_less_is_the_one_of_the_engine() -> None:
    ours = describe.fields(engine.DegradeRule)
    theirs = {entry.key.rpartition(".")[2]: entry for entry in config_parsing.item_entries(ENGINE["overload.degrade"])}
    assert list(ours) == list(theirs)
    for alias, entry in theirs.items():
        hint, metadata = describe.strip(ours[alias].annotation)
        metadata = [*ours[alias].metadata, *metadata]
        default = ours[alias].get_default(call_default_factory=True)
        assert (tuple(default) if isinstance(default, list) else default) == entry.default
        assert entry.setting.choices == typing.get_args(hint) or hint in (int, list[base.KeyName])
        if hint is int:
            assert limits(metadata) == (entry.setting.minimum, entry.setting.maximum)


def test_names_of_keys_are_those_that_a_key_file_can_have() -> None:
    adapter = pydantic.TypeAdapter(base.KeyName)
    for name in ("batch", "9", "a.b-c_D", "x" * 63, "x" * 64, "-a", ".a", "a b", "a/b", "ä", ""):
        try:
            (key,) = key_lines.parse(f"secret name={name}", attributes=True)
            known = key.name == name
        except ValueError:
            known = False
        try:
            accepted = adapter.validate_python(name) == name
        except pydantic.ValidationError:
            accepted = False
        assert accepted == known, name


@pytest.mark.parametrize("path", sorted(effects.paths()))
def test_every_path_of_the_effects_table_exists(path: str) -> None:
    assert describe.hint_at(service.Spec, path.split("."))[2] is not None
