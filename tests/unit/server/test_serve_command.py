"""`tidemark serve`: flags, file, and what it says when something is wrong before anything is loaded."""

from __future__ import annotations

import logging
import socket

import pytest
import typer.testing

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.commands import serve


@pytest.fixture(autouse=True)
def _logging_as_before():
    """The command sets up logging for its process, to a stream that the runner closes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def invoke():
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    application.command(name="serve")(serve.command)
    runner = typer.testing.CliRunner()
    return lambda *arguments: runner.invoke(application, arguments)


@pytest.fixture
def config_file(tmp_path):
    def write(text: str):
        path = tmp_path / "engine.yaml"
        path.write_text(text)
        return path

    return write


def read(file=None, model="m.gguf", **flags) -> config.EngineConfig:
    return serve.read_settings(file, model, flags)


def test_every_setting_with_a_flag_is_an_option(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    parameters = set(serve.command.__signature__.parameters)
    flags = {entry.setting.flag.replace("-", "_") for entry in config_parsing.entries() if entry.setting.flag}
    assert parameters == flags | {"model", "config"}


def test_flags_win_over_the_file(config_file):
    path = config_file("model: {source: other.gguf}\nscheduler: {maxNumSeqs: 4, maxQueueSeconds: 7}\nserver:\n")
    parsed = read(path, max_num_seqs="8", kv_memory="1Gi")
    assert parsed.model.source == "m.gguf"
    assert (parsed.scheduler.max_num_seqs, parsed.scheduler.max_queue_seconds) == (8, 7.0)
    assert parsed.kv_cache.memory == 2**30
    assert read(path, None).model.source == "other.gguf"


def test_all_problems_of_file_and_flags_together(invoke, config_file):
    path = config_file("scheduler: {maxNumSeq: 4}\nserver: 5\n")
    result = invoke("m.gguf", "--config", str(path), "--dtype", "float8", "--max-num-seqs", "0")
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines[0] == "tidemark serve: ConfigInvalid: 4 problems"
    assert any(line.startswith("  --dtype: got 'float8', expected one of auto") for line in lines)
    assert any(line.startswith("  --max-num-seqs: got '0'") for line in lines)
    assert any("scheduler.maxNumSeq:" in line and "Did you mean scheduler.maxNumSeqs?" in line for line in lines)
    assert any(line.startswith("  server: got 5") for line in lines)


def test_no_model_at_all(invoke):
    result = invoke("--max-num-seqs", "4")
    assert result.exit_code == 2
    assert result.output.startswith("tidemark serve: ConfigInvalid: MODEL: got ")
    assert "tidemark serve MODEL" in result.output


def test_a_model_that_is_not_there(invoke, tmp_path):
    result = invoke(str(tmp_path / "missing.gguf"))
    assert result.exit_code == 1
    assert "missing.gguf" in result.output


@pytest.mark.parametrize("text", ["- a list", "a: [", "'text'"])
def test_a_file_that_is_no_mapping(config_file, text):
    path = config_file(text)
    with pytest.raises(errors.ConfigError, match="--config") as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(errors.ConfigError, match="No such file"):
        read(tmp_path / "none.yaml")


def test_an_unreadable_key_file(invoke, tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    result = invoke(str(model), "--api-keys-file", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "--api-keys-file" in result.output
    assert "No such file or directory" in result.output


def test_a_port_in_use_is_said_before_the_model_is_loaded(invoke, tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"no model at all")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = invoke(str(model), "--port", str(port))
    assert result.exit_code == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.output


def test_a_key_that_stands_twice_in_the_file_is_refused(invoke, config_file):
    path = config_file("scheduler:\n  maxNumSeqs: 4\nserver: {port: 1}\nscheduler: {}\n")
    result = invoke("m.gguf", "--config", str(path))
    assert result.exit_code == 2
    assert "scheduler: got two of it, on lines 1 and 4, expected each key once" in result.output


def test_b075_a_text_is_a_number_on_the_command_line_only(config_file):
    path = config_file('scheduler: {maxNumSeqs: "4"}\n')
    with pytest.raises(errors.ConfigError, match=r"scheduler\.maxNumSeqs: got '4', expected a whole number"):
        read(path)
    assert read(path, max_num_seqs="4").scheduler.max_num_seqs == 4
