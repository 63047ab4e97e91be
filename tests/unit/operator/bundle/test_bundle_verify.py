"""`tidemark bundle --verify`: whatever was done to a bundle is found and named."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import image_archives as made
import pytest

from tidemark_operator import cli, errors
from tidemark_operator.commands import bundle_contents, bundle_verify, bundle_write

VERSION = "0.1.0"
CHART = f"charts/tidemark-{VERSION}.tgz"
ARCHIVE = "images/operator.tar"


def silent(_what: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    archive = made.write_tar(folder / "a.tar", made.oci_files(f"localhost/tidemark/operator:{VERSION}"))
    bundle_write.write(folder / "bundle", bundle_contents.collect([archive], None, silent), silent)
    return folder / "bundle"


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


def problems(folder: Path) -> list[str]:
    return list(bundle_verify.verify(folder, silent).problems)


def sign_again(folder: Path) -> None:
    """What somebody does who changes files and does not want it to be seen."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}" for path in paths
    ]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines))


def change_index(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    index = json.loads((folder / "bundle.json").read_text())
    change(index)
    (folder / "bundle.json").write_text(json.dumps(index))


def resize_in_index(folder: Path, path: str) -> None:
    index = json.loads((folder / "bundle.json").read_text())
    for entry in index["files"]:
        if entry["path"] == path:
            entry["size_bytes"] = (folder / path).stat().st_size
    (folder / "bundle.json").write_text(json.dumps(index))


def test_a_whole_bundle_has_no_problems(whole: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    report = bundle_verify.verify(whole, lambda *what: seen.append(what))
    files = [path for path in whole.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    assert report == bundle_verify.Report((), len(files), sum(path.stat().st_size for path in files))
    checked = [item for item in seen if item[0].startswith("checking")]
    assert checked[-1][1] == checked[-1][2] == report.size_bytes


def test_one_bit_is_enough(bundle: Path) -> None:
    path = bundle / ARCHIVE
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    (problem,) = problems(bundle)
    assert problem.startswith(f"{ARCHIVE}: is damaged: SHA-256 ")


def test_a_missing_file_is_named(bundle: Path) -> None:
    (bundle / CHART).unlink()
    assert problems(bundle) == [f"{CHART}: is missing; copy it again"]


def test_a_surplus_file_is_named(bundle: Path) -> None:
    (bundle / "images/more.tar").write_bytes(b"x")
    assert problems(bundle) == ["images/more.tar: is not part of the bundle; remove it"]


def test_a_renamed_file_is_missing_and_surplus(bundle: Path) -> None:
    (bundle / ARCHIVE).rename(bundle / "images/Operator.tar")
    assert problems(bundle) == [
        f"{ARCHIVE}: is missing; copy it again",
        "images/Operator.tar: is not part of the bundle; remove it",
    ]


def test_a_link_is_no_file(bundle: Path, tmp_path: Path) -> None:
    (bundle / CHART).rename(tmp_path / "elsewhere.tgz")
    (bundle / CHART).symlink_to(tmp_path / "elsewhere.tgz")
    (bundle / "more").symlink_to(tmp_path)
    assert problems(bundle) == [f"{name}: is a link or no file; copy the file itself" for name in ("more", CHART)] + [
        f"{CHART}: is missing; copy it again"
    ]


def test_everything_wrong_is_told_at_once(bundle: Path) -> None:
    (bundle / CHART).write_bytes(b"")
    (bundle / "README.md").unlink()
    (bundle / "more").write_text("x")
    assert [problem.split(":")[0] for problem in problems(bundle)] == ["README.md", "more", CHART]


def test_a_damaged_list_of_checksums_is_told(bundle: Path) -> None:
    lines = (bundle / "SHA256SUMS").read_text().splitlines()
    (bundle / "SHA256SUMS").write_text("\n".join([lines[0], *lines, "what?"]) + "\n")
    assert problems(bundle) == [
        "SHA256SUMS: line 2 names a file again; copy the file again",
        f"SHA256SUMS: line {len(lines) + 2} is not a checksum, two blanks and a path; copy the file again",
    ]


def test_a_checksum_outside_the_bundle_is_never_read(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with (bundle / "SHA256SUMS").open("a") as file:
        file.write(f"{hashlib.sha256(b'x').hexdigest()}  ../secret\n")
    assert problems(bundle)[0] == "../secret: is missing; copy it again"


@pytest.mark.parametrize("where", ["nowhere", "no bundle"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, where: str) -> None:
    if where == "no bundle":
        (tmp_path / where).mkdir()
    with pytest.raises(errors.ManifestFileError, match="expected"):
        bundle_verify.verify(tmp_path / where, silent)


def test_without_its_index_a_bundle_is_not_whole(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    assert problems(bundle) == ["bundle.json: is missing; copy it again"]
    sign_again(bundle)
    assert problems(bundle) == ["bundle.json: is missing, and in SHA256SUMS too; copy both again"]


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 1}', '{"format": 1, "images": [1], "files": []}'])
def test_another_index_is_told(bundle: Path, text: str) -> None:
    (bundle / "bundle.json").write_text(text)
    sign_again(bundle)
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json: is not what `tidemark bundle` writes: ")


def test_a_newer_format_is_told(bundle: Path) -> None:
    change_index(bundle, lambda index: index.update(format=2, version="9.9"))
    sign_again(bundle)
    assert problems(bundle) == [
        "bundle.json: got format 2, expected 1: take the `tidemark` of version 9.9",
    ]


def test_an_archive_with_another_image_is_told_although_its_checksum_is_right(bundle: Path) -> None:
    made.write_tar(bundle / ARCHIVE, made.oci_files("localhost/tidemark/engine:0.1.0", b"another"))
    resize_in_index(bundle, ARCHIVE)
    sign_again(bundle)
    assert [problem.partition(" sha256")[0] for problem in problems(bundle)] == [
        f"{ARCHIVE}: its image has the digest",
        f"{ARCHIVE}: holds localhost/tidemark/engine:0.1.0, expected tidemark/operator:0.1.0",
    ]


def test_a_broken_archive_is_told_although_its_checksum_is_right(bundle: Path) -> None:
    (bundle / ARCHIVE).write_bytes(b"x" * 2048)
    resize_in_index(bundle, ARCHIVE)
    sign_again(bundle)
    (problem,) = problems(bundle)
    assert problem.startswith(f"{ARCHIVE}: not the whole archive of one container image")


def test_a_chart_that_names_other_images_is_told(bundle: Path) -> None:
    def change(index: dict[str, object]) -> None:
        images = index["images"]
        assert isinstance(images, list)
        del images[0]

    change_index(bundle, change)
    sign_again(bundle)
    assert problems(bundle) == [
        "images.txt: differs from the images of bundle.json; make the bundle again",
        f"images.txt: lists nothing for the chart's images.engine, which is tidemark/engine:{VERSION}; "
        "make the bundle again",
    ]


def test_a_file_that_is_no_chart_is_told(bundle: Path) -> None:
    (bundle / CHART).write_bytes(b"x")
    resize_in_index(bundle, CHART)
    sign_again(bundle)
    (problem,) = problems(bundle)
    assert problem.startswith(f"{CHART}: not a package of the chart tidemark")


def test_index_and_checksums_must_name_the_same_files(bundle: Path) -> None:
    (bundle / "docs/more.md").write_text("x")
    sign_again(bundle)
    assert problems(bundle) == ["docs/more.md: stands in SHA256SUMS, but not in bundle.json; make the bundle again"]
    (bundle / "docs/more.md").unlink()
    (bundle / "README.md").unlink()
    sign_again(bundle)
    assert problems(bundle) == ["README.md: stands in bundle.json, but not in SHA256SUMS; make the bundle again"]


def test_a_size_that_the_index_does_not_know_is_told(bundle: Path) -> None:
    (bundle / "README.md").write_text("x")
    sign_again(bundle)
    (problem,) = problems(bundle)
    assert problem.startswith("README.md: has 1 bytes, bundle.json says ")


def test_the_verb_ends_with_1_and_the_list(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bundle", "--verify", str(bundle)]) == 0
    assert "files are as written" in capsys.readouterr().out
    (bundle / CHART).unlink()
    assert cli.run(["bundle", "--verify", str(bundle)]) == 1
    assert capsys.readouterr().out == f"{bundle}: 1 problem\n  {CHART}: is missing; copy it again\n"
    assert cli.run(["bundle", "--verify", str(bundle), "--output", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["problems"]) == (False, [f"{CHART}: is missing; copy it again"])


def test_the_verb_verifies_or_writes(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["bundle", "--verify", str(bundle), "--images", "a.tar"]) == 2
    assert "--verify: got --images or --wheelhouse" in capsys.readouterr().err
