"""Makes a screenshot small: at most 256 colours, packed as tightly as zlib can."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_COLOURS = 256

Pixels = npt.NDArray[np.uint8]
"""[height, width, 3]."""


def written(pixels: Pixels) -> bytes:
    """A PNG with a palette: colours beyond the most frequent ones become the nearest of these."""
    height, width, _ = pixels.shape
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, which, counts = np.unique(packed.reshape(-1), return_inverse=True, return_counts=True)
    kept = _kept(colours, counts)
    nearest = _nearest(colours, kept).astype(np.uint8)
    rows = nearest[which].reshape(height, width)
    data = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    palette = b"".join(int(colour).to_bytes(3, "big") for colour in kept)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, body) for name, body in chunks)


def _kept(colours: npt.NDArray[np.uint32], counts: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
    """The most frequent of each kind of colour first, so that a small spot of green stays green; then by number."""
    ordered = colours[np.argsort(counts)[::-1]]
    kinds = (ordered >> 5 & 0x70707).astype(np.uint32)
    first = np.zeros(len(ordered), bool)
    first[np.unique(kinds, return_index=True)[1]] = True
    return np.concatenate([ordered[first], ordered[~first]])[:_MOST_COLOURS]


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _nearest(colours: npt.NDArray[np.uint32], kept: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    """For each colour, the place of the most similar one that is kept."""

    def split(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        return np.stack([values >> 16 & 255, values >> 8 & 255, values & 255], axis=1).astype(np.int32)

    found = []
    palette = split(kept)
    for start in range(0, len(colours), 4096):
        apart = split(colours[start : start + 4096])[:, None, :] - palette[None, :, :]
        found.append(np.argmin((apart * apart).sum(axis=2), axis=1))
    return np.concatenate(found)
