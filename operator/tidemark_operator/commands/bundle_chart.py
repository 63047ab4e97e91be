"""The Helm chart, as a folder or packed: its version, the images it names, and the package itself."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidemark_operator import errors
from tidemark_runtime.contract import yaml_words

NAME = "tidemark"


@dataclass(frozen=True, slots=True)
class Chart:
    version: str
    """Of the chart: part of its package's file name."""
    app_version: str
    """The tag of images for which the values name none."""
    images: Mapping[str, str]
    """Component -> image without a registry's prefix: `operator` -> `tidemark/operator:0.1.0`."""

    @property
    def package_path(self) -> str:
        """In a bundle."""
        return f"charts/{NAME}-{self.version}.tgz"


def read(folder: Path) -> Chart:
    """Raises `errors.ManifestFileError`."""
    try:
        texts = {name: (folder / name).read_bytes() for name in ("Chart.yaml", "values.yaml")}
    except OSError as error:
        raise errors.ManifestFileError(f"{error.filename}: {error.strerror}, expected a file of the chart") from error
    return _parsed(texts["Chart.yaml"], texts["values.yaml"], folder)


def read_package(path: Path) -> Chart:
    """As `read`, of a .tgz."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            files = [tar.extractfile(f"{NAME}/{name}") for name in ("Chart.yaml", "values.yaml")]
            about, values = (b"" if file is None else file.read() for file in files)
    except (OSError, EOFError, tarfile.TarError, KeyError) as error:
        raise errors.ManifestFileError(f"{path}: not a package of the chart {NAME}: {error}") from error
    return _parsed(about, values, path)


def _parsed(about_text: bytes, values_text: bytes, where: Path) -> Chart:
    try:
        about, values = yaml.safe_load(about_text), yaml.safe_load(values_text)
        return Chart(
            str(about["version"]),
            str(about["appVersion"]),
            {
                component: image(values["images"], component, str(about["appVersion"]))
                for component, value in values["images"].items()
                if isinstance(value, Mapping)
            },
        )
    except yaml.YAMLError as error:
        raise errors.ManifestFileError(f"{where}: not the chart {NAME}: {yaml_words.sentence(error)}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.ManifestFileError(f"{where}: not the chart {NAME}: {error!r}") from error


def image(images: Mapping[str, Any], component: str, app_version: str) -> str:
    """As the template `tidemark.image` writes it; without a prefix, as the values' `registry` is a site's own."""
    block = images[component]
    if block.get("digest"):
        return f"{block['repository']}@{block['digest']}"
    return f"{block['repository']}:{block.get('tag') or app_version}"


def package(folder: Path) -> bytes:
    """What `helm install` takes: the same bytes for the same files. Left out are those whose name begins with a dot."""
    made = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=made, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in inside.parts):
                info = tarfile.TarInfo(f"{NAME}/{inside.as_posix()}")
                info.size, info.mode = path.stat().st_size, 0o644
                with path.open("rb") as file:
                    tar.addfile(info, file)
    return made.getvalue()
