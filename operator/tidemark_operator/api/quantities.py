"""Sizes as Kubernetes writes them: `24Gi`, `500M`, `1073741824`.

Source: apimachinery's `resource.Quantity`, without milli-bytes, which are always a mistake in a size.
"""

from __future__ import annotations

import decimal
import re

_SIZE = re.compile(r"(\d{1,30}(?:\.\d{0,9})?)([KMGTPE]i|[kMGTPE]|[eE]\d{1,2})?", re.ASCII)
_AMOUNT = re.compile(r"([+-]?[\d.]+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?", re.ASCII)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_NEAR = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtTpP])(i?)[bB]?\s*")
MAX_BYTES = 2**63 - 1
"""A Kubernetes quantity is held in 64 bits."""


def to_bytes(text: str) -> int:
    """`24Gi` -> 25769803776. Raises `ValueError` with the remedy, for a text that is not a size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(_remedy(text))
    number, suffix = decimal.Decimal(match[1]), match[2] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1].isdigit():
        factor = decimal.Decimal(10) ** int(suffix[1:])
    else:
        factor = decimal.Decimal(1024 if suffix.endswith("i") else 1000) ** _POWERS[suffix[:1]]
    size = number * factor
    if size > MAX_BYTES:
        raise ValueError("More than 2^63 bytes; no machine has that.")
    if size != int(size):
        raise ValueError("It is not a whole number of bytes.")
    return int(size)


def to_number(text: str) -> decimal.Decimal:
    """Any amount that an API server writes: `250m` -> 0.25, `2` -> 2, `1Gi` -> 1073741824. Raises `ValueError`."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"got {text!r}, expected an amount such as 250m, 2 or 1Gi")
    suffix = match[2] or ""
    try:
        if suffix.endswith("i"):
            return decimal.Decimal(match[1]) * decimal.Decimal(1024) ** _POWERS[suffix[0]]
        if len(suffix) > 1:
            return decimal.Decimal(match[1] + suffix)
        return decimal.Decimal(match[1]).scaleb(_POWERS_OF_TEN.get(suffix, 0))
    except decimal.InvalidOperation as error:
        raise ValueError(f"got {text!r}, expected an amount such as 250m, 2 or 1Gi") from error


def _remedy(text: str) -> str:
    match = _NEAR.fullmatch(text)
    if match is None:
        return "Write a number and one of Ki, Mi, Gi, Ti (powers of 1024) or k, M, G, T (powers of 1000)."
    unit = match[2].upper()
    decimal_unit = "k" if unit == "K" else unit
    return f"Write {match[1]}{unit}i (1024) or {match[1]}{decimal_unit} (1000)."
