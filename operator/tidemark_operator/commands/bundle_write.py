"""Writes a bundle: whole, or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidemark_operator import errors
from tidemark_operator.commands import bundle_archive, bundle_contents

FORMAT = 1
"""Of bundle.json; a reader refuses another one."""
INDEX = "bundle.json"
SUMS = "SHA256SUMS"


def write(folder: Path, contents: bundle_contents.Contents, progress: bundle_contents.Progress) -> None:
    """Everything is written beside `folder` and renamed at the end. The same contents make the same bytes.

    Raises `errors.ManifestFileError` when `folder` holds something, and `OSError` of the disk.
    """
    check_free(folder)
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.absolute().name}-"))
    try:
        sums = _write_items(work, contents, progress)
        index = index_text(contents, {item.path: item.size_bytes for item in contents.items}).encode()
        (work / INDEX).write_bytes(index)
        sums[INDEX] = hashlib.sha256(index).hexdigest()
        (work / SUMS).write_text("".join(f"{sums[path]}  {path}\n" for path in sorted(sums)))
        work.chmod(0o755)
        os.rename(work, folder.absolute())
    except BaseException:  # Ctrl-C too: half a bundle helps nobody
        shutil.rmtree(work, ignore_errors=True)
        raise


def check_free(folder: Path) -> None:
    """Raises `errors.ManifestFileError` when there is something that would be overwritten."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = "a folder that holds something" if folder.is_dir() else "a file"
        raise errors.ManifestFileError(
            f"{folder}: got {what}, expected a folder that does not exist or is empty. Remove it or choose another"
        )


def index_text(contents: bundle_contents.Contents, sizes: Mapping[str, int]) -> str:
    """bundle.json: version, images, and the size of every file but itself and SHA256SUMS."""
    made = {
        "format": FORMAT,
        "version": contents.chart.app_version,
        "chart": contents.chart.package_path,
        "images": [image.entry() for image in contents.images],
        "files": [{"path": path, "size_bytes": sizes[path]} for path in sorted(sizes)],
    }
    return json.dumps(made, indent=1) + "\n"


def _write_items(work: Path, contents: bundle_contents.Contents, progress: bundle_contents.Progress) -> dict[str, str]:
    """Path -> SHA-256."""
    total, done = sum(item.size_bytes for item in contents.items), 0
    sums: dict[str, str] = {}
    for item in contents.items:
        target = work / item.path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        source = io.BytesIO(item.source) if isinstance(item.source, bytes) else item.source.open("rb")
        with source, target.open("xb") as file:
            while chunk := source.read(bundle_archive.CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
                done += len(chunk)
                progress(f"writing {item.path}", done, total)
        sums[item.path] = digest.hexdigest()
    return sums
