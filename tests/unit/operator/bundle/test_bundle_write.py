"""Writing a bundle: what is in it, always the same bytes, whole or not at all, and what is refused."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import chart
import image_archives as made
import pytest
import yaml

from tidemark_operator import cli, errors
from tidemark_operator.commands import bundle_chart, bundle_contents, bundle_write

VERSION = "0.1.0"
Archives = Callable[..., list[Path]]


def silent(_what: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
def archives(tmp_path: Path) -> Archives:
    """Writes an archive of each image named."""

    def write(*names: str) -> list[Path]:
        folder = tmp_path / "given"
        folder.mkdir(exist_ok=True)
        return [
            made.write_tar(folder / f"archive-{number}.tar", made.oci_files(name)) for number, name in enumerate(names)
        ]

    return write


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels-given" / "operator"
    folder.mkdir(parents=True)
    (folder / f"tidemark_inference-{VERSION}-py3-none-any.whl").write_bytes(b"wheel")
    (folder / "typer-0.29.2-py3-none-any.whl").write_bytes(b"another")
    (folder / "requirements.txt").write_text("typer==0.29.2\n")
    return folder.parent


def write(folder: Path, archives: list[Path] | None = None, wheelhouse: Path | None = None) -> bundle_contents.Contents:
    contents = bundle_contents.collect(archives or [], wheelhouse, silent)
    bundle_write.write(folder, contents, silent)
    return contents


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_a_bundle_holds_what_a_site_needs(tmp_path: Path, archives: Archives, wheelhouse: Path) -> None:
    given = archives(f"localhost/tidemark/operator:{VERSION}", f"tidemark/engine:{VERSION}")
    write(tmp_path / "bundle", given, wheelhouse)
    found = content(tmp_path / "bundle")
    assert {
        "README.md",
        "SHA256SUMS",
        "bundle.json",
        "images.txt",
        f"charts/tidemark-{VERSION}.tgz",
        "crds/tidemark.dev_inferenceservices.yaml",
        "images/operator.tar",
        "images/engine.tar",
        "operator/Containerfile",
        "runtime/Containerfile",
        ".containerignore",
        f"wheels/operator/tidemark_inference-{VERSION}-py3-none-any.whl",
        "wheels/operator/requirements.txt",
        "dashboards/grafana/overview.zh.json",
        "docs/operations/README.md",
        "docs/operations/install.md",
        "docs/reference/inferenceservice.md",
        "examples/smollm2.yaml",
    } <= found.keys()
    crd = "crds/tidemark.dev_inferenceservices.yaml"
    assert found[crd] == (chart.ROOT / crd).read_bytes()
    assert found["images/operator.tar"] == given[0].read_bytes()


def test_checksums_are_what_sha256sum_takes(tmp_path: Path) -> None:
    write(tmp_path / "bundle")
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path / "bundle", capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    lines = (tmp_path / "bundle/SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == content(tmp_path / "bundle").keys() - {"SHA256SUMS"}


def test_the_index_tells_images_and_sizes(tmp_path: Path, archives: Archives) -> None:
    files = made.oci_files(f"tidemark/operator:{VERSION}")
    write(tmp_path / "bundle", archives(f"tidemark/operator:{VERSION}"))
    found = content(tmp_path / "bundle")
    index = json.loads(found["bundle.json"])
    assert (index["format"], index["version"], index["chart"]) == (1, VERSION, f"charts/tidemark-{VERSION}.tgz")
    assert index["images"] == [
        {
            "image": f"tidemark/engine:{VERSION}",
            "component": "engine",
            "archive": None,
            "digest": None,
            "digest_of": None,
            "platforms": [],
        },
        {
            "image": f"tidemark/operator:{VERSION}",
            "component": "operator",
            "archive": "images/operator.tar",
            "digest": made.digest(files),
            "digest_of": "manifest",
            "platforms": ["linux/amd64"],
        },
    ]
    assert {entry["path"]: entry["size_bytes"] for entry in index["files"]} == {
        path: len(data) for path, data in found.items() if path not in ("bundle.json", "SHA256SUMS")
    }
    lines = [line.split() for line in found["images.txt"].decode().splitlines()[1:]]
    assert lines == [
        [f"tidemark/engine:{VERSION}", "-", "-", "-"],
        [f"tidemark/operator:{VERSION}", made.digest(files), "manifest", "images/operator.tar"],
    ]


def test_two_bundles_of_the_same_are_equal(tmp_path: Path, archives: Archives, wheelhouse: Path) -> None:
    given = archives(f"tidemark/operator:{VERSION}", "example.com/base:1")
    write(tmp_path / "one", given, wheelhouse)
    write(tmp_path / "two", given[::-1], wheelhouse)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_packed_chart_is_the_chart(tmp_path: Path) -> None:
    path = tmp_path / "chart.tgz"
    path.write_bytes(bundle_chart.package(chart.CHART))
    with tarfile.open(path) as tar:
        found = {member.name: tar.extractfile(member) for member in tar}
        inside = {name: file.read() for name, file in found.items() if file}
    expected = content(chart.CHART)
    assert inside == {f"tidemark/{name}": data for name, data in expected.items()}
    assert bundle_chart.read_package(path) == bundle_chart.read(chart.CHART)
    assert bundle_chart.package(chart.CHART) == path.read_bytes()


@pytest.mark.parametrize("case", ["defaults", "mirror", "everything"])
def test_images_are_read_as_the_template_writes_them(tmp_path: Path, case: str) -> None:
    values = chart.merged(chart.GOOD_VALUES[case])
    (tmp_path / "Chart.yaml").write_bytes((chart.CHART / "Chart.yaml").read_bytes())
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    found = bundle_chart.read(tmp_path).images
    assert (
        found
        == {
            "defaults": {"operator": f"tidemark/operator:{VERSION}", "engine": f"tidemark/engine:{VERSION}"},
            "mirror": {"operator": f"tidemark/operator@{chart.DIGEST}", "engine": "tidemark/engine:1.2"},
            "everything": {"operator": "example.com/own/operator:1", "engine": f"tidemark/engine:{VERSION}"},
        }[case]
    )


def test_an_image_that_is_not_the_charts_is_taken_along(tmp_path: Path, archives: Archives) -> None:
    contents = write(tmp_path / "bundle", archives("example.com/python:3.11"))
    last = contents.images[-1]
    assert (last.image, last.component, last.archive) == ("example.com/python:3.11", None, "images/archive-0.tar")
    assert [image.archive for image in contents.images[:-1]] == [None, None]


def test_another_version_of_our_image_is_not_taken_for_ours(tmp_path: Path, archives: Archives) -> None:
    contents = write(tmp_path / "bundle", archives("tidemark/operator:0.0.9", f"x-tidemark/engine:{VERSION}"))
    assert [image.component for image in contents.images if image.archive] == [None, None]


@pytest.mark.parametrize("what", ["a file in it", "a file", "a dead link"])
def test_nothing_is_overwritten(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "bundle"
    if what == "a file in it":
        folder.mkdir()
        (folder / "mine").write_text("mine")
    elif what == "a file":
        folder.write_text("mine")
    else:
        folder.symlink_to(tmp_path / "nowhere")
    with pytest.raises(errors.ManifestFileError, match="expected a folder that does not exist or is empty"):
        bundle_write.check_free(folder)
    contents = bundle_contents.collect([], None, silent)
    with pytest.raises(errors.ManifestFileError):
        bundle_write.write(folder, contents, silent)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    write(tmp_path / "bundle")
    assert (tmp_path / "bundle/bundle.json").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_half_a_bundle_is_removed(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupt(what: str, _done: int, _total: int) -> None:
        if what == "writing images.txt":
            raise error

    contents = bundle_contents.collect([], None, silent)
    with pytest.raises(error):
        bundle_write.write(tmp_path / "bundle", contents, interrupt)
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    "missing archive": "--images: .*nowhere.tar does not exist",
    "a folder": "--images: .* or is no file",
    "the same image twice": "got a second archive of tidemark/operator",
    "no name": "its image has no name, expected one of tidemark/engine",
    "two files of one name": "another one is called 'base.tar'",
    "odd name": "odd name.tar: got this name",
    "no wheel of ours": "holds neither operator/tidemark_inference",
    "one folder too deep": "holds neither operator/tidemark_inference",
    "wheel of another version": "has tidemark_inference 0.0.9, expected the chart's 0.1.0",
    "a link": "a link or no file",
}


def refused(case: str, folder: Path) -> tuple[list[Path], Path | None]:
    """Archives and wheelhouse that cannot go into a bundle."""

    def archive(name: str, image: str) -> Path:
        (folder / name).parent.mkdir(exist_ok=True)
        return made.write_tar(folder / name, made.docker_files(image))

    def wheels(name: str) -> Path:
        (folder / "wheels/operator").mkdir(parents=True)
        (folder / "wheels/operator" / name).write_bytes(b"x")
        return folder / "wheels"

    match case:
        case "missing archive":
            return [folder / "nowhere.tar"], None
        case "a folder":
            return [folder], None
        case "the same image twice":
            ours = f"tidemark/operator:{VERSION}"
            return [archive("one.tar", ours), archive("two.tar", f"localhost/{ours}")], None
        case "no name":
            return [archive("nameless.tar", "")], None
        case "two files of one name":
            return [archive("base.tar", "a:1"), archive("other/base.tar", "b:1")], None
        case "odd name":
            return [archive("odd name.tar", "a:1")], None
        case "no wheel of ours":
            return [], wheels("typer-1-py3-none-any.whl")
        case "one folder too deep":
            return [], wheels(f"tidemark_inference-{VERSION}-py3-none-any.whl") / "operator"
        case "wheel of another version":
            return [], wheels("tidemark_inference-0.0.9-py3-none-any.whl")
    (wheels("a.whl") / "b.whl").symlink_to(folder)
    return [], folder / "wheels"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_go_into_a_bundle_is_refused(tmp_path: Path, case: str) -> None:
    archives, wheelhouse = refused(case, tmp_path)
    with pytest.raises(errors.ManifestFileError, match=REFUSED[case]):
        bundle_contents.collect(archives, wheelhouse, silent)


def test_installed_from_a_wheel_the_files_lie_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/tidemark_operator"
    (package / "commands").mkdir(parents=True)
    monkeypatch.setattr(bundle_contents, "__file__", str(package / "commands/bundle_contents.py"))
    with pytest.raises(errors.ManifestFileError, match="neither in a checkout around it nor in its folder _data"):
        bundle_contents.root()
    (package / "_data/charts/tidemark").mkdir(parents=True)
    (package / "_data/charts/tidemark/Chart.yaml").write_text("")
    assert bundle_contents.root() == package / "_data"


def test_the_wheel_takes_along_what_a_bundle_holds() -> None:
    """Under the same paths, in the package's folder _data."""
    build = tomllib.loads((chart.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = ["charts", *bundle_contents.CONTAINERFILES, *bundle_contents.DOCUMENTS]
    existing = [path for path in wanted if (chart.ROOT / path).exists()]
    assert build["force-include"] == {path: f"tidemark_operator/_data/{path}" for path in existing}


def test_the_verb_tells_what_it_wrote_and_what_is_lacking(
    tmp_path: Path, archives: Archives, capsys: pytest.CaptureFixture[str]
) -> None:
    (archive,) = archives(f"tidemark/operator:{VERSION}")
    assert cli.run(["bundle", str(tmp_path / "b"), "--images", str(archive)]) == 0
    said = capsys.readouterr()
    assert f"Tidemark {VERSION}" in said.out
    assert said.err.startswith(f"warning: no archive of tidemark/engine:{VERSION} is in the bundle: the site must have")
    assert cli.run(["bundle", str(tmp_path / "b")]) == 2
    assert "expected a folder that does not exist or is empty" in capsys.readouterr().err


def test_the_verb_speaks_json(tmp_path: Path, wheelhouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bundle", str(tmp_path / "b"), "--wheelhouse", str(wheelhouse), "--output", "json"]
    assert cli.run(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["path"]) == (VERSION, str(tmp_path / "b"))
    assert [image["image"] for image in said["images"]] == [
        f"tidemark/engine:{VERSION}",
        f"tidemark/operator:{VERSION}",
    ]
    assert [warning.partition(": ")[2] for warning in said["warnings"]] == [
        "the site must have it already, or get --images FILE",
        "the site makes it from wheels/",
    ]
    readme = (tmp_path / "b/README.md").read_text()
    assert "-f operator/Containerfile" in readme
    assert "-f runtime/Containerfile" not in readme
    assert cli.run(["bundle", str(tmp_path / "c"), "--wheelhouse", str(tmp_path / "nowhere"), "-o", "json"]) == 2
    assert "is no folder" in json.loads(capsys.readouterr().err)["error"]["message"]
