"""Checks a bundle: every file as it was written, none missing, none too many, and images that belong to the chart."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_operator import errors
from tidemark_operator.commands import bundle_archive, bundle_chart, bundle_contents, bundle_images, bundle_write

_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True, slots=True)
class Report:
    problems: tuple[str, ...]
    """Sentences that begin with the file they are about; empty: all is well."""
    num_files: int
    size_bytes: int


def verify(folder: Path, progress: bundle_contents.Progress) -> Report:
    """Looks at everything, whatever is found. Raises `errors.ManifestFileError` where there is no bundle to look at."""
    if not folder.is_dir():
        raise errors.ManifestFileError(f"{folder}: got no folder, expected one that `tidemark bundle` has written")
    if not (folder / bundle_write.SUMS).is_file():
        raise errors.ManifestFileError(
            f"{folder}: {bundle_write.SUMS} is missing, expected a whole copy of what `tidemark bundle` has written"
        )
    problems: list[str] = []
    sums = _sums(folder, problems)
    found = {path: (folder / path).stat().st_size for path in _files(folder, problems)}
    found.pop(bundle_write.SUMS, None)
    problems += [f"{path}: is missing; copy it again" for path in sorted(sums.keys() - found.keys())]
    problems += [f"{path}: is not part of the bundle; remove it" for path in sorted(found.keys() - sums.keys())]
    sound = _compare(folder, {path: sums[path] for path in sums.keys() & found.keys()}, progress, problems)
    if bundle_write.INDEX in sound:
        problems += _against_index(_Seen(folder, sums, found, sound), progress)
    elif not any(problem.startswith(f"{bundle_write.INDEX}:") for problem in problems):
        problems.append(f"{bundle_write.INDEX}: is missing, and in {bundle_write.SUMS} too; copy both again")
    return Report(tuple(problems), len(found), sum(found.values()))


def _sums(folder: Path, problems: list[str]) -> dict[str, str]:
    """Path -> SHA-256."""
    made: dict[str, str] = {}
    text = (folder / bundle_write.SUMS).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in made:
            why = "names a file again" if match else "is not a checksum, two blanks and a path"
            problems.append(f"{bundle_write.SUMS}: line {number} {why}; copy the file again")
        else:
            made[match[2]] = match[1]
    return made


def _files(folder: Path, problems: list[str]) -> Iterator[str]:
    """Plain files, as paths from the bundle on. A link is a problem: it may lead anywhere."""
    for where, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(where) / name
            inside = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                problems.append(f"{inside}: is a link or no file; copy the file itself")
            elif path.is_file():
                yield inside


def _compare(
    folder: Path, sums: Mapping[str, str], progress: bundle_contents.Progress, problems: list[str]
) -> frozenset[str]:
    """Files that are as they were."""
    total, done = sum((folder / path).stat().st_size for path in sums), 0
    sound = set()
    for path in sorted(sums):
        digest = hashlib.sha256()
        try:
            with (folder / path).open("rb") as file:
                while chunk := file.read(bundle_archive.CHUNK_BYTES):
                    digest.update(chunk)
                    done += len(chunk)
                    progress(f"checking {path}", done, total)
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
            continue
        if digest.hexdigest() == sums[path]:
            sound.add(path)
        else:
            problems.append(f"{path}: is damaged: SHA-256 {digest.hexdigest()}, expected {sums[path]}; copy it again")
    return frozenset(sound)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A bundle whose files were compared with their checksums."""

    folder: Path
    sums: Mapping[str, str]
    sizes: Mapping[str, int]
    """Of the files that are there, in bytes."""
    sound: frozenset[str]
    """Files with the right checksum; of others everything has been told."""


def _against_index(seen: _Seen, progress: bundle_contents.Progress) -> Iterator[str]:
    """What bundle.json says against checksums, chart and archives."""
    try:
        index: Any = json.loads((seen.folder / bundle_write.INDEX).read_bytes())
        if index["format"] != bundle_write.FORMAT:
            yield (
                f"{bundle_write.INDEX}: got format {index['format']}, expected {bundle_write.FORMAT}: take the "
                f"`tidemark` of version {index['version']}"
            )
            return
        images = bundle_images.of_entries(index["images"])
        sizes = {str(entry["path"]): int(entry["size_bytes"]) for entry in index["files"]}
        chart = str(index["chart"])
    except (ValueError, KeyError, TypeError) as error:
        yield f"{bundle_write.INDEX}: is not what `tidemark bundle` writes: {error!r}; make the bundle again"
        return
    yield from _files_of_index(seen, sizes)
    if bundle_images.PATH in seen.sound and _text(seen, bundle_images.PATH) != bundle_images.text(images):
        yield f"{bundle_images.PATH}: differs from the images of {bundle_write.INDEX}; make the bundle again"
    if chart in seen.sound:
        yield from _chart(seen.folder / chart, chart, images)
    for image in images:
        if image.archive in seen.sound:
            yield from _archive(seen.folder, image, progress)
        elif image.archive is not None and image.archive not in seen.sums:
            yield f"{image.archive}: is the archive of {image.image}, but not part of the bundle; make the bundle again"


def _files_of_index(seen: _Seen, sizes: Mapping[str, int]) -> Iterator[str]:
    for path in sorted(sizes.keys() ^ (seen.sums.keys() - {bundle_write.INDEX})):
        where, lacking = (bundle_write.INDEX, bundle_write.SUMS)[:: 1 if path in sizes else -1]
        yield f"{path}: stands in {where}, but not in {lacking}; make the bundle again"
    for path in sorted(sizes.keys() & seen.sound):
        if sizes[path] != seen.sizes[path]:
            yield (
                f"{path}: has {seen.sizes[path]} bytes, {bundle_write.INDEX} says {sizes[path]}; make the bundle again"
            )


def _text(seen: _Seen, path: str) -> str:
    return (seen.folder / path).read_text(encoding="utf-8", errors="replace")


def _chart(path: Path, inside: str, images: Sequence[bundle_images.Image]) -> Iterator[str]:
    try:
        chart = bundle_chart.read_package(path)
    except errors.ManifestFileError as error:
        yield str(error).replace(str(path), inside, 1)
        return
    listed = {image.component: image.image for image in images}
    for component, name in sorted(chart.images.items()):
        if listed.get(component) != name:
            yield (
                f"{bundle_images.PATH}: lists {listed.get(component, 'nothing')} for the chart's images.{component}, "
                f"which is {name}; make the bundle again"
            )


def _archive(folder: Path, image: bundle_images.Image, progress: bundle_contents.Progress) -> Iterator[str]:
    path = folder / str(image.archive)
    try:
        archive = bundle_contents.read_archive(path, progress)
    except errors.ManifestFileError as error:
        yield str(error).replace(str(path), str(image.archive), 1)
        return
    if archive.digest != image.digest:
        yield f"{image.archive}: its image has the digest {archive.digest}, the list says {image.digest}"
    if not bundle_images.is_named(archive, image.image):
        yield f"{image.archive}: holds {', '.join(archive.names) or 'an image without a name'}, expected {image.image}"
