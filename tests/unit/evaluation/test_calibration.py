"""`tidemark eval calibrate`: scales from one half of a text, checked on the other, written for an engine to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from tidemark_operator import cli
from tidemark_runtime import errors
from tidemark_runtime.evaluation import calibration, configurations, items, reader, subject
from tidemark_runtime.planning import fixed_scales

WORDS = "The sea rises twice a day, and nobody asked it to. Der Pegel bei 7.30 Uhr: 4,12 m. 水位上升。 "


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def site_text(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Long enough for a tenth of what is asked for else."""
    monkeypatch.setattr(calibration, "FIT_TOKENS", 300)
    Path("site.txt").write_text(WORDS * 12, encoding="utf-8")
    return Path("site.txt")


def windows(made: subject.Subject, tokens: int = 256) -> list[items.WindowItem]:
    return items.windows(items.Text("made", (("en", WORDS * 20),)), made.encoder, tokens, 64)


def test_a_bound_is_the_largest_number_of_the_text(made: subject.Subject) -> None:
    fit, held = windows(made)[::2], windows(made)[1::2]
    wish = calibration.Wish("int8")
    found = calibration.find(made.model, fit, held, wish, lambda *_: None)
    shape = made.model.spec.kv_shape
    assert len(found.scales) == 2 * shape.num_layers * shape.num_kv_heads
    largest = 0.0
    for window in fit:
        one = reader.Reader(made.model, configurations.Configuration("", "float32").layout(shape), 64)
        list(one.read(window.token_ids))
        largest = max(largest, float(one.kept(1, "k", 64)[1].abs().max()))
    assert found.scales[1, 1, "k"] == pytest.approx(largest / 127, rel=1e-6)
    roomy = calibration.find(made.model, fit, held, calibration.Wish("int8", headroom=2.0), lambda *_: None)
    assert roomy.scales[1, 1, "k"] == pytest.approx(2 * found.scales[1, 1, "k"])
    assert roomy.clipping.clipped <= found.clipping.clipped
    tight = calibration.find(made.model, fit, held, calibration.Wish("int8", percentile=50.0), lambda *_: None)
    assert tight.scales[1, 1, "k"] < found.scales[1, 1, "k"]
    assert tight.clipping.clipped > 0
    assert tight.clipping.share == tight.clipping.clipped / tight.clipping.elements
    assert max(tight.clipping.by_place.values()) >= tight.clipping.share


def test_what_is_kept_is_read_back_as_it_was_written(made: subject.Subject) -> None:
    """The pages of a quantized configuration, against those of the unquantized one."""
    shape, (window, *_) = made.model.spec.kv_shape, windows(made)
    exact, int8, int4 = (
        reader.Reader(made.model, configurations.Configuration("", dtype).layout(shape), 64)
        for dtype in ("float32", "int8", "int4")
    )
    for one in (exact, int8, int4):
        list(one.read(window.token_ids))
    wanted = exact.kept(0, "v", 50)
    assert wanted.shape == (shape.num_kv_heads, 50, shape.head_dim)
    largest = wanted.abs().amax(-1, keepdim=True)
    assert bool(((int8.kept(0, "v", 50) - wanted).abs() <= largest / 200).all())
    assert bool(((int4.kept(0, "v", 50) - wanted).abs() <= largest / 10).all())
    assert not torch.equal(int4.kept(0, "v", 50), wanted)


def test_a_text_that_is_too_short_is_refused_with_the_number_and_why(
    model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("site.txt").write_text(WORDS * 4, encoding="utf-8")
    arguments = ["eval", "calibrate", str(model_folder), "--text", "site.txt", "--window", "64", "--scales", "s.yaml"]
    assert cli.run(arguments) == 2
    message = capsys.readouterr().err
    assert "--text: got site.txt with " in message
    assert "expected at least 3000 in each half" in message
    assert "only 3000 tokens that keep within a bound make it likely (95 %) that at most 0.1 %" in message
    assert not Path("s.yaml").exists()


def test_scales_that_eval_and_the_engine_read(
    model_folder: Path, site_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--threads", "1", "--window", "64"]
    arguments = ["eval", "calibrate", str(model_folder), "--text", str(site_text), *small]
    assert cli.run([*arguments, "--scales", "scales.yaml", "--configmap", "calibrated"]) == 0
    shown = capsys.readouterr().out
    assert "8 scales for int8, found on " in shown
    assert "Written: scales.yaml, calibrated.yaml" in shown
    written = configurations.read_scales(Path("scales.yaml"))
    assert configurations.read_scales(Path("calibrated.yaml")).scales == written.scales
    manifest = yaml.safe_load(Path("calibrated.yaml").read_text(encoding="utf-8"))
    assert set(manifest["data"]) == {fixed_scales.CONFIG_MAP_KEY}
    assert written.tokens >= 300

    measured = ["eval", str(model_folder), *small, "--tokens", "128", "--parts", "text", "--scales-file", "scales.yaml"]
    assert cli.run([*measured, "-o", "json"]) == 0
    plain, fixed = json.loads(capsys.readouterr().out)["configurations"]
    assert (plain["name"], fixed["name"]) == ("int8", "int8 + scales")
    assert fixed["kvTokenBytes"] < plain["kvTokenBytes"]
    assert 0 < plain["text"]["meanKl"] < fixed["text"]["meanKl"] < 0.01

    assert cli.run([*measured, "--kv-cache-dtype", "fp8_e4m3"]) == 2
    assert "--scales-file: got scales for int8, expected scales for one of fp8_e4m3" in capsys.readouterr().err


def test_as_json(model_folder: Path, site_text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "calibrate", str(model_folder), "--text", str(site_text), "--threads", "1", "--window", "64"]
    assert cli.run([*arguments, "--scales", "s.yaml", "--percentile", "90", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clippedShare"] > 0
    assert found["worst"][0]["clipped"] >= found["clippedShare"]
    assert found["scales"]["k"] == yaml.safe_load(Path("s.yaml").read_text(encoding="utf-8"))["scales"]["k"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-cache-dtype", "int4", "--scales", "s.yaml"], "--kv-cache-dtype: got 'int4', expected one of fp8_e4m3"),
        (["--scales", "s.txt"], "--scales: got 's.txt', expected a file name that ends in .yaml"),
        (["--configmap", "UPPER"], "--configmap: got 'UPPER'"),
        ([], "--scales: got None, expected a file to write"),
        (["--scales", "s.yaml", "--text", "missing.txt"], "--text: got 'missing.txt'"),
    ],
)
def test_what_is_wrong_is_said(
    model_folder: Path, site_text: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", "calibrate", str(model_folder), "--text", str(site_text), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_head_of_zeros_has_no_scale(made: subject.Subject) -> None:
    with pytest.raises(errors.ConfigError, match="k of layer 3, head 1 with the largest magnitude 0"):
        calibration._scale((3, 1, "k"), torch.zeros(10), calibration.Wish("int8"))
