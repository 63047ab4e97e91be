"""`tidemark serve` and precision maps that are wrong by themselves: refused before anything is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import typer.testing

from tidemark_runtime.commands import serve


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """The command sets up logging for its process, to a stream that the runner closes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("kv_cache", "place", "remedy"),
    [
        ("{dtype: int7}", "kvCache.dtype: got 'int7', expected one of auto, float32, float16, bfloat16", ""),
        (
            "{dtype: int8, precision: [{layers: '0', dtype: int3}]}",
            "kvCache.precision[0].dtype: got 'int3', expected one of auto, ",
            "",
        ),
        ("{dtype: int8, precision: [{layers: '0', kind: q}]}", "kvCache.precision[0].kind: got 'q'", "k, v, both"),
        ("{dtype: int8, precision: [{layer: '0'}]}", "kvCache.precision[0].layer", "layers"),
        (
            "{dtype: int8, precision: [{layers: '0'}], precisionFile: map.yaml}",
            "kvCache.precisionFile: got 'map.yaml', expected either kvCache.precision or kvCache.precisionFile",
            "Remove one of them",
        ),
    ],
)
def test_a_wrong_map_ends_it_with_2_and_names_the_place(kv_cache: str, place: str, remedy: str, tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(f"model: {{source: m.gguf}}\nkvCache: {kv_cache}\n")
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    application.command(name="serve")(serve.command)
    done = typer.testing.CliRunner().invoke(application, ["--config", str(file)])
    assert done.exit_code == 2
    assert place in done.output
    assert remedy in done.output
