"""Which checkpoint some files are: enough to notice that it is another one than before."""

from __future__ import annotations

import hashlib

from tidemark_runtime.model import sources

_HASHED_BYTES = 1 << 20
_SUFFIXES = (".gguf", ".safetensors")


def of(source: sources.ModelSource) -> str:
    """Sixteen hex digits from the size and the first bytes of the files with weights, in the order of their names.

    Not from the names: the same model lies in a pod under another one. A checksum of all of many gigabytes would take
    minutes; the first mebibyte holds the file's own description and the first weights.
    Raises `OSError` where a file cannot be read.
    """
    inside = [source.path] if source.path.is_file() else [path for path in source.path.iterdir() if path.is_file()]
    digest = hashlib.sha256()
    for file in sorted(path for path in inside if path.suffix.lower() in _SUFFIXES):
        with file.open("rb") as opened:
            digest.update(f"{file.stat().st_size} ".encode())
            digest.update(opened.read(_HASHED_BYTES))
    return digest.hexdigest()[:16]
