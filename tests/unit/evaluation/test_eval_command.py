"""`tidemark eval` from the command line, with a made model."""

from __future__ import annotations

import html.parser
import json
import re
import xml.dom.minidom
from pathlib import Path

import pytest
import yaml

from tidemark_operator import cli
from tidemark_runtime.evaluation import configurations, journal, measuring
from tidemark_runtime.model import identity, sources

SMALL = ["--tokens", "128", "--window", "64", "--prompts", "2", "--continuation", "4", "--threads", "1"]
ASKED = ["--lengths", "600", "--contracts", "1"]
PAIR = ["--kv-cache-dtype", "int8", "--kv-cache-dtype", "fp8_e5m2"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def only_file(pattern: str) -> Path:
    found = list(Path().glob(pattern))
    assert len(found) == 1, found
    return found[0]


class Parser(html.parser.HTMLParser):
    """Counts pictures, and whatever the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = 0
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "svg"
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]


def pictures_of(page: Path) -> int:
    """Drawings of a page that fetches nothing; each is well-formed by itself."""
    text = page.read_text(encoding="utf-8")
    parser = Parser()
    parser.feed(text)
    assert parser.fetched == []
    drawings = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(drawings) == parser.pictures
    for drawing in drawings:
        xml.dom.minidom.parseString(drawing)
    return parser.pictures


def test_all_parts_as_table_page_and_json(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", str(model_folder), *SMALL, *ASKED, *PAIR]
    assert cli.run([*arguments, "--html", "page.html"]) == 0
    shown = capsys.readouterr()
    for words in ("text: made, 128 tokens", "greedy: 2 continuations", "retrieval: 10 facts", "extraction: 16 fields"):
        assert words in shown.out
    assert "unquantized (float32)" in shown.out
    assert shown.err == "", "no bar where there is no terminal"
    assert pictures_of(Path("page.html")) == 6

    assert cli.run([*arguments, "--resume", "--output", "json", "--compare", "eval-results"]) == 2
    kept = only_file("eval-results/*/result.json")
    assert cli.run([*arguments, "--resume", "--output", "json", "--compare", str(kept)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in found["configurations"]] == ["int8", "fp8_e5m2"]
    int8, e5m2 = found["configurations"]
    assert 0 < int8["text"]["meanKl"] < e5m2["text"]["meanKl"]
    assert int8["kvTokenBytes"] < found["baseKvTokenBytes"]
    assert int8["text"]["speed"]["prompt"] > 0
    assert int8["greedy"]["speed"]["decode"] > 0
    assert all(change["before"] == change["now"] for change in found["compared"])
    assert len(found["compared"]) == 20


def test_a_limit_ends_with_1_and_the_reason(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", str(model_folder), *SMALL, "--parts", "text", "--kv-cache-dtype", "fp8_e5m2"]
    assert cli.run([*arguments, "--max-kl", "0"]) == 1
    assert re.search(r"^tidemark: fp8_e5m2: mean KL \S+ is over --max-kl 0$", capsys.readouterr().err, re.MULTILINE)
    assert cli.run([*arguments, "--max-kl", "0", "-o", "json"]) == 1
    assert cli.run([*arguments, "--max-kl", "100", "--max-perplexity-rise", "1"]) == 0


def test_a_run_that_was_stopped_goes_on(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(model_folder), *SMALL, "--parts", "text,greedy"]
    assert cli.run([*arguments, "-o", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    kept = only_file(f"eval-results/*/{journal.ITEMS_FILE}")
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 3
    kept.write_text("".join(lines[:2]), encoding="utf-8")
    measured = []
    true_measure = measuring.Bench.measure
    monkeypatch.setattr(
        measuring.Bench, "measure", lambda self, item, *rest: measured.append(item) or true_measure(self, item, *rest)
    )
    assert cli.run([*arguments, "-o", "json", "--resume"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert len(measured) == 1
    assert again["configurations"][0]["text"] == whole["configurations"][0]["text"]


def test_your_own_text(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.txt").write_text("Wasser steigt, und niemand sieht die Linie. " * 20, encoding="utf-8")
    assert cli.run(["eval", str(model_folder), *SMALL, "--parts", "text", "--text", "site.txt"]) == 0
    assert "text: site.txt, 128 tokens" in capsys.readouterr().out


def test_sensitivity_writes_a_map_that_eval_reads(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--tokens", "64", "--window", "32", "--threads", "1"]
    arguments = ["eval", "sensitivity", str(model_folder), *small, "--kv-cache-dtype", "fp8_e5m2", "--detail", "heads"]
    assert cli.run([*arguments, "--map", "map.yaml", "--configmap", "found", "--html", "page.html"]) == 0
    shown = capsys.readouterr().out
    assert "dearest of 8, by KL for each byte" in shown
    written = yaml.safe_load(Path("map.yaml").read_text(encoding="utf-8"))
    assert written["kvDtype"] == "fp8_e5m2"
    source = sources.resolve(str(model_folder), Path())
    assert (written["model"], written["weights"]) == (source.name, identity.of(source))
    assert {rule["dtype"] for rule in written["rules"]} == {"bfloat16"}
    manifest = yaml.safe_load(Path("found.yaml").read_text(encoding="utf-8"))
    assert (manifest["kind"], manifest["metadata"]) == ("ConfigMap", {"name": "found"})
    assert configurations.read_map(Path("found.yaml")) == written
    assert "data:\n  precision.yaml: |" in Path("found.yaml").read_text(encoding="utf-8")
    assert pictures_of(Path("page.html")) == 2

    found = json.loads(only_file("eval-results/*sensitivity*/result.json").read_text(encoding="utf-8"))
    assert found["chosen"]["kl"] <= found["limit"] < found["plain"]["kl"]

    with_map = ["eval", str(model_folder), *SMALL, "--parts", "text", "--kv-cache-dtype", "fp8_e5m2", "-o", "json"]
    assert cli.run([*with_map, "--precision-map", "found.yaml"]) == 0
    plain, mapped = json.loads(capsys.readouterr().out)["configurations"]
    assert (plain["name"], mapped["name"]) == ("fp8_e5m2", "fp8_e5m2 + map")
    assert mapped["text"]["meanKl"] < plain["text"]["meanKl"]
    assert mapped["kvTokenBytes"] > plain["kvTokenBytes"]
    assert mapped["map"]["rules"] == written["rules"]


def test_no_map_is_said_and_ends_with_1(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--tokens", "64", "--window", "32", "--threads", "1", "--detail", "layers", "--map", "map.yaml"]
    arguments = ["eval", "sensitivity", str(model_folder), *small, "--max-kl", "0", "--max-extra-bytes", "0.2"]
    assert cli.run(arguments) == 1
    assert "no map with at most 20% more KV bytes keeps within a KL of 0 nats: the best has" in capsys.readouterr().err
    assert not Path("map.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-cache-dtype", "int3"], "--kv-cache-dtype: got 'int3', expected one of bfloat16"),
        (["--parts", "text,needle"], "--parts: got 'text,needle', expected some of text,greedy,retrieval,extraction"),
        (["--parts", "greedy", "--max-kl", "1"], "--parts: got 'greedy', expected text among them"),
        (["--lengths", "many"], "--lengths: got 'many', expected whole numbers with commas"),
        (["--html", "page.pdf"], "--html: got 'page.pdf', expected a file name that ends in .html"),
        (["--html", "no/such/page.html"], "expected a file in a folder that exists"),
        (["--text", "none.txt"], "--text: got 'none.txt', expected a readable file"),
        (["--compare", "none.json"], "--compare: got 'none.json', expected a result.json that"),
        (
            ["--precision-map", "none.yaml"],
            "--precision-map: got 'none.yaml', expected a readable YAML file with rules",
        ),
        (["--base-dtype", "int3", *SMALL], "--base-dtype: got 'int3', expected one of float32"),
    ],
)
def test_what_is_wrong_is_said(
    model_folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", str(model_folder), *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_a_map_of_another_model_is_refused(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("map.yaml").write_text("rules: [{layers: 7, kind: k}]", encoding="utf-8")
    assert cli.run(["eval", str(model_folder), *SMALL, "--precision-map", "map.yaml"]) == 2
    assert "--precision-map.rules[0]: layers: got [7], expected layers under 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "guess"], "--method: got 'guess', expected one of quantize, keep"),
        (["--detail", "tokens"], "--detail: got 'tokens', expected one of auto, layers, heads"),
        (["--map", "map.txt"], "--map: got 'map.txt', expected a file name that ends in .yaml"),
        (["--configmap", "Not A Name"], "--configmap: got 'Not A Name', expected a name of small letters"),
        (["--keep-dtype", "int8"], "--keep-dtype: got 'int8', expected another dtype than --kv-cache-dtype"),
    ],
)
def test_what_is_wrong_with_a_search_is_said(
    model_folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["eval", "sensitivity", str(model_folder), "--threads", "1", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_help_tells_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "sensitivity" in shown
    assert "run" in shown
