"""What the command line of `tidemark up` accepts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidemark_operator import api, errors, names
from tidemark_operator.commands import documents, up

MANIFEST = """
apiVersion: tidemark.dev/v1alpha1
kind: InferenceService
metadata: {name: NAME}
spec: {model: {source: {package: {name: smollm2-135m}}}, hardware: {resourceName: cpu, count: 1}}
"""


def test_secrets() -> None:
    assert up.parse_secrets(["keys=./k", "a=b=c"]) == {"keys": Path("./k"), "a": Path("b=c")}


@pytest.mark.parametrize("wrong", ["keys", "=file", "keys=", ""])
def test_a_secret_without_name_or_file_is_refused(wrong: str) -> None:
    with pytest.raises(errors.ManifestFileError, match=rf"--secret: got '{wrong}', expected NAME=FILE"):
        up.parse_secrets([wrong])


async def test_two_services_in_one_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(f"{MANIFEST.replace('NAME', 'a')}---{MANIFEST.replace('NAME', 'b')}")
    with pytest.raises(errors.ManifestFileError, match=r"got 2 InferenceServices \(a, b\), expected one"):
        await up.run(up.Options(file=file, root=tmp_path / "state"))


async def test_an_unreadable_key_file_is_named_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(MANIFEST.replace("NAME", "a"))
    options = up.Options(file=file, root=tmp_path / "state", secrets={"keys": tmp_path / "none"})
    with pytest.raises(errors.ManifestFileError, match=r"none: the Secret's file cannot be read: No such file"):
        await up.run(options)
    assert not (tmp_path / "state").exists()


def test_the_document_is_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(MANIFEST.replace("NAME", "a"))
    document = documents.document_of(api.load_file(file)[0])
    assert document["spec"] == {
        "model": {"source": {"package": {"name": "smollm2-135m"}}},
        "hardware": {"resourceName": "cpu", "count": 1},
    }
    assert (document["kind"], document["metadata"]) == (names.KIND, {"name": "a", "namespace": "default"})
    assert api.parse(document).spec == api.load_file(file)[0].spec


def test_a_log_that_cannot_be_written_is_no_news_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with up._log_to(tmp_path / "no such folder" / "operator.log"):
        logging.getLogger("tidemark_operator").warning("reconcile failed")
    assert capsys.readouterr().err == ""
