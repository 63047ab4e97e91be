"""What a bundle consists of: which file goes where, and which images the site will ask for. Nothing is written here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_operator import errors
from tidemark_operator.api import crd
from tidemark_operator.commands import bundle_archive, bundle_chart, bundle_images, bundle_readme

CHART_FOLDER = "charts/tidemark"
CONTAINERFILES = ("operator/Containerfile", "runtime/Containerfile", ".containerignore")
DOCUMENTS = ("dashboards/grafana", "docs/operations", "docs/reference", "docs/runbooks", "examples")
"""Folders that are taken whole; one that this version does not have is no error."""
_FILE_NAME = re.compile(r"[A-Za-z0-9._+~!-]+")
_WHEEL = re.compile(r"wheels/(?:operator|runtime)/tidemark_inference-([^-]+)-.*\.whl")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done, bytes in all."""


@dataclass(frozen=True, slots=True)
class Item:
    """One file of the bundle: copied, or made from text."""

    path: str
    source: Path | bytes

    @property
    def size_bytes(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


@dataclass(frozen=True, slots=True)
class Contents:
    chart: bundle_chart.Chart
    images: Sequence[bundle_images.Image]
    items: Sequence[Item]
    """Sorted by path; without bundle.json and SHA256SUMS, which tell of these."""


def root() -> Path:
    """Where chart, Containerfiles and pages lie: in the checkout, or in the installed package, under the same paths.

    Raises `errors.ManifestFileError` where they are not.
    """
    here = Path(__file__).resolve().parent.parent
    for folder in (here.parent.parent, here / "_data"):
        if (folder / CHART_FOLDER / "Chart.yaml").is_file():
            return folder
    raise errors.ManifestFileError(
        f"{here}: the chart is neither in a checkout around it nor in its folder _data. Install the wheel again, or "
        "call `tidemark bundle` from a checkout"
    )


def collect(
    archives: Sequence[Path], wheelhouse: Path | None, progress: Progress, files: Path | None = None
) -> Contents:
    """`files`: as `root()`. Raises `errors.ManifestFileError` for what cannot go into a bundle."""
    files = root() if files is None else files
    chart = bundle_chart.read(files / CHART_FOLDER)
    images, found = _images(chart, archives, progress)
    wheels = _wheels(wheelhouse, chart.app_version)
    items = [
        Item(chart.package_path, bundle_chart.package(files / CHART_FOLDER)),
        Item(crd.PATH, crd.render().encode()),
        Item(bundle_readme.PATH, bundle_readme.text(chart, images, wheels_of(wheels)).encode()),
        Item(bundle_images.PATH, bundle_images.text(images).encode()),
        *(Item(path, files / path) for path in CONTAINERFILES),
        *(item for folder in DOCUMENTS for item in _folder(files / folder, folder)),
        *found,
        *wheels,
    ]
    return Contents(chart, images, sorted(items, key=lambda item: item.path))


def _folder(folder: Path, inside: str) -> Iterator[Item]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise errors.ManifestFileError(f"{path}: a link or no file, expected a plain file. Copy what it points to")
        if not all(_FILE_NAME.fullmatch(part) for part in relative.parts):
            raise errors.ManifestFileError(f"{path}: got the name {path.name!r}, expected letters, digits and ._+~!-")
        yield Item(f"{inside}/{relative.as_posix()}", path)


def wheels_of(items: Sequence[Item]) -> frozenset[str]:
    """Folders below wheels/: `operator` and `runtime`, which their Containerfiles take, and `models`."""
    return frozenset(item.path.split("/")[1] for item in items if item.path.startswith("wheels/"))


def _wheels(wheelhouse: Path | None, version: str) -> list[Item]:
    if wheelhouse is None:
        return []
    items = list(_folder(wheelhouse, "wheels"))
    ours = {match[1] for item in items if (match := _WHEEL.fullmatch(item.path))}
    if not ours:
        raise errors.ManifestFileError(
            f"--wheelhouse: {wheelhouse} holds neither operator/tidemark_inference-*.whl nor one in runtime/. "
            "Fill it with scripts/build_wheelhouse.sh"
        )
    if others := sorted(ours - {version}):
        raise errors.ManifestFileError(
            f"--wheelhouse: {wheelhouse} has tidemark_inference {', '.join(others)}, expected the chart's {version}. "
            "Fill it again with scripts/build_wheelhouse.sh"
        )
    return items


def _images(
    chart: bundle_chart.Chart, archives: Sequence[Path], progress: Progress
) -> tuple[list[bundle_images.Image], list[Item]]:
    """One line for each image of the chart, then one for each other archive; and the archives."""
    known: dict[str, bundle_images.Image] = {}
    others: list[bundle_images.Image] = []
    items: list[Item] = []
    for path in archives:
        if not path.is_file():
            raise errors.ManifestFileError(f"--images: {path} does not exist, or is no file; expected an image archive")
        image = _image(chart, path, read_archive(path, progress))
        if image.component in known:
            raise errors.ManifestFileError(f"--images: {path}: got a second archive of {image.image}, expected one")
        if any(item.path == image.archive for item in items):
            raise errors.ManifestFileError(f"--images: {path}: another one is called {path.name!r}, too; rename it")
        if image.component is None:
            others.append(image)
        else:
            known[image.component] = image
        items.append(Item(str(image.archive), path))
    listed = [
        known.get(component, bundle_images.Image(name, component)) for component, name in sorted(chart.images.items())
    ]
    return [*listed, *sorted(others, key=lambda image: image.image)], items


def read_archive(path: Path, progress: Progress) -> bundle_archive.Archive:
    """As `bundle_archive.read`."""
    size, done = path.stat().st_size, 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        progress(f"reading {path.name}", done, size)

    return bundle_archive.read(path, more)


def _image(chart: bundle_chart.Chart, path: Path, archive: bundle_archive.Archive) -> bundle_images.Image:
    about = (archive.digest, archive.digest_of, archive.platforms)
    for component, name in chart.images.items():
        if bundle_images.is_named(archive, name):
            return bundle_images.Image(name, component, f"images/{component}.tar", *about)
    if not archive.names:
        raise errors.ManifestFileError(
            f"--images: {path}: its image has no name, expected one of {', '.join(sorted(chart.images.values()))}. "
            "Write it with one: `buildah push NAME oci-archive:FILE:NAME`"
        )
    if not _FILE_NAME.fullmatch(path.name):
        raise errors.ManifestFileError(f"--images: {path}: got this name, expected letters, digits and ._+~!-")
    return bundle_images.Image(archive.names[0], None, f"images/{path.name}", *about)
