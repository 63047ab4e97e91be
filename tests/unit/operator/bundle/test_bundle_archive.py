"""Archives of images: their digest and names, and every way to be broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import image_archives as made
import pytest

from tidemark_operator import errors
from tidemark_operator.commands import bundle_archive

NAME = "localhost/tidemark/operator:0.1.0"


def test_an_oci_archive_has_the_digest_that_a_registry_gives_it(tmp_path: Path) -> None:
    files = made.oci_files(NAME)
    read: list[int] = []
    found = bundle_archive.read(made.write_tar(tmp_path / "a.tar", files), read.append)
    assert found == bundle_archive.Archive((NAME,), made.digest(files), "manifest", ("linux/amd64",))
    assert sum(read) == sum(map(len, files.values()))


@pytest.mark.parametrize("packed", [False, True])
def test_a_docker_archive_has_the_image_id(tmp_path: Path, packed: bool) -> None:
    files = made.docker_files(NAME, packed=packed)
    found = bundle_archive.read(made.write_tar(tmp_path / "a.tar", files))
    identity = next(iter(files)).removesuffix(".json")
    assert found == bundle_archive.Archive((NAME,), f"sha256:{identity}", "configuration", ("linux/amd64",))


def test_an_archive_of_both_kinds_has_the_registrys_digest_and_all_names(tmp_path: Path) -> None:
    oci = made.oci_files("0.1.0")
    files = {**oci, "manifest.json": json.dumps([{"RepoTags": [NAME]}]).encode()}
    found = bundle_archive.read(made.write_tar(tmp_path / "a.tar", files))
    assert (found.names, found.digest) == (("0.1.0", NAME), made.digest(oci))


def test_an_archive_for_several_platforms_names_them(tmp_path: Path) -> None:
    one, other = made.oci_files(NAME), made.oci_files(NAME, b"another")
    both = [json.loads(files["index.json"])["manifests"][0] for files in (one, other)]
    index = json.dumps({"schemaVersion": 2, "manifests": both}).encode()
    outer = {"manifests": [{"digest": f"sha256:{made.sha256(index)}", "size": len(index)}]}
    files = {
        **one,
        **other,
        f"blobs/sha256/{made.sha256(index)}": index,
        "index.json": json.dumps(outer).encode(),
    }
    found = bundle_archive.read(made.write_tar(tmp_path / "a.tar", files))
    assert found == bundle_archive.Archive((), f"sha256:{made.sha256(index)}", "manifest", ("linux/amd64",))


def test_a_packed_archive_is_read_too(tmp_path: Path) -> None:
    path = made.write_tar(tmp_path / "a.tar", made.oci_files(NAME))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert bundle_archive.read(path).names == (NAME,)


def broken_files() -> dict[str, tuple[dict[str, bytes], str]]:
    oci, docker = made.oci_files(NAME), made.docker_files(NAME)
    layer, config, manifest = list(oci)[:3]
    docker_config, docker_layer = list(docker)[:2]
    two = json.dumps({"manifests": json.loads(oci["index.json"])["manifests"] * 2}).encode()
    return {
        "a layer was changed": ({**oci, layer: b"x" + oci[layer]}, "has the SHA-256"),
        "a layer is missing": (without(oci, layer), "the blob sha256:"),
        "the configuration is missing": (without(oci, config), "the blob sha256:"),
        "the manifest is missing": (without(oci, manifest), "the blob sha256:"),
        "two images": ({**oci, "index.json": two}, "holds 2 images"),
        "the index is no JSON": ({**oci, "index.json": b"{"}, "is not JSON"),
        "the index lacks its list": ({**oci, "index.json": b"{}"}, "lacks what an image has"),
        "the index is a list": ({**oci, "index.json": b"[]"}, "lacks what an image has"),
        "no index": ({"hello": b"x"}, "neither index.json nor manifest.json"),
        "docker: a layer was changed": ({**docker, docker_layer: b"x"}, "expected sha256:"),
        "docker: a layer is missing": (without(docker, docker_layer), "is missing"),
        "docker: the configuration was changed": ({**docker, docker_config: b"{}"}, "has the SHA-256"),
        "docker: the configuration is missing": (without(docker, docker_config), "is missing"),
        "docker: no image": ({**docker, "manifest.json": b"[]"}, "holds 0 images"),
    }


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: value for key, value in files.items() if key != name}


BROKEN = broken_files()


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named(tmp_path: Path, case: str) -> None:
    files, words = BROKEN[case]
    path = made.write_tar(tmp_path / "broken.tar", files)
    with pytest.raises(errors.ManifestFileError) as raised:
        bundle_archive.read(path)
    assert str(raised.value).startswith(f"{path}: not the whole archive of one container image: ")
    assert words in str(raised.value)


@pytest.mark.parametrize("kind", ["cut off", "no tar", "empty"])
def test_a_copy_that_broke_off_is_named(tmp_path: Path, kind: str) -> None:
    path = made.write_tar(tmp_path / "a.tar", made.oci_files(NAME))
    content = {"cut off": path.read_bytes()[:1500], "no tar": b"hello" * 1000, "empty": b""}[kind]
    path.write_bytes(content)
    with pytest.raises(errors.ManifestFileError, match="not the whole archive"):
        bundle_archive.read(path)
