"""The list of a bundle's images: what the chart asks for, and which archive has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator.commands import bundle_archive

PATH = "images.txt"


@dataclass(frozen=True, slots=True)
class Image:
    """One line."""

    image: str
    """As the chart names it, without a registry; or, where the chart does not name it, as its archive does."""
    component: str | None
    """Its block in the chart's values; None: not the chart's."""
    archive: str | None = None
    """In the bundle; None: the site gets it otherwise."""
    digest: str | None = None
    digest_of: str | None = None
    """`manifest` or `configuration`, see `bundle_archive`."""
    platforms: Sequence[str] = ()

    def entry(self) -> dict[str, Any]:
        """For bundle.json."""
        return {
            "image": self.image,
            "component": self.component,
            "archive": self.archive,
            "digest": self.digest,
            "digest_of": self.digest_of,
            "platforms": list(self.platforms),
        }


def of_entries(entries: Sequence[Mapping[str, Any]]) -> list[Image]:
    """The list as bundle.json has it. Raises `KeyError` or `TypeError` for anything else."""
    return [
        Image(
            str(entry["image"]),
            entry["component"],
            entry["archive"],
            entry["digest"],
            entry["digest_of"],
            tuple(entry["platforms"]),
        )
        for entry in entries
    ]


def is_named(archive: bundle_archive.Archive, image: str) -> bool:
    """Whatever registry stands before it, as `localhost/` does where buildah made it."""
    return any(name == image or name.endswith(f"/{image}") for name in archive.names)


def text(listed: Sequence[Image]) -> str:
    """images.txt: a line each, in columns that scripts can split; `-` where there is nothing."""
    rows = [("# IMAGE", "DIGEST", "OF", "ARCHIVE")]
    rows += [(row.image, row.digest or "-", row.digest_of or "-", row.archive or "-") for row in listed]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        f"{''.join(f'{cell:<{width}}  ' for cell, width in zip(row, widths, strict=False))}{row[3]}\n" for row in rows
    )
