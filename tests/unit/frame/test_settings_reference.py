"""The page of settings is what `config.py` says, and every setting is explained."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark_runtime import config, config_parsing, config_reference

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/engine-settings.md"


def test_the_checked_in_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == config_reference.render(), "run `make render`"


@pytest.mark.parametrize("entry", list(config_parsing.entries()), ids=lambda entry: entry.key)
def test_every_setting_has_a_docstring_and_a_row(entry: config_parsing.Entry) -> None:
    cls = type(getattr(config.EngineConfig(), entry.section))
    words = config_reference.field_docstrings()[cls.__name__, entry.name]
    assert len(words) > 10
    row = next(line for line in config_reference.render().splitlines() if line.startswith(f"| `{entry.key}` "))
    assert f"| {entry.setting.effect} |" in row
    if entry.setting.flag:
        assert f"`--{entry.setting.flag}`" in row


def test_a_field_without_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "class ServerConfig:\n    host: str = ''\n    port: int = 0\n    '''Only this one is explained.'''\n"
    monkeypatch.setattr(config_reference.inspect, "getsource", lambda _: source)
    with pytest.raises(LookupError, match="has no docstring"):
        config_reference.render()


def test_render_check_names_a_stale_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/render.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    copy = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", copy)
    done = subprocess.run(
        [sys.executable, str(copy / "render.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    for page in ("engine-settings", "http-api", "inferenceservice", "metrics"):
        assert f"docs/reference/{page}.md is out of date: run `make render`" in done.stderr
