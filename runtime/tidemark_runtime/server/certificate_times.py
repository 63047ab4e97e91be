"""When a certificate ends, read from its PEM file: the standard library loads certificates but does not tell.

Of X.509 only the way to `notAfter` is walked: SEQUENCE Certificate, SEQUENCE TBSCertificate, then past version, serial
number, signature and issuer to the SEQUENCE Validity with its two times (RFC 5280, sections 4.1 and 4.1.2.5).
"""

from __future__ import annotations

import datetime
import re
import ssl

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_LONG = 0x80
"""In the first octet of a length: the other bits count the octets that follow and hold it."""
_CENTURY_FROM = 50
"""Two digits of a year from here on are 19xx, below 20xx (RFC 5280, section 4.1.2.5.1)."""


def first_end(pem: str) -> float:
    """Unix time at which the first certificate of a chain ends. Raises `ValueError` where there is none, or one cannot
    be read."""
    blocks = _BLOCK.findall(pem)
    if not blocks:
        raise ValueError("it holds no certificate")
    return min(_end(ssl.PEM_cert_to_DER_cert(block)) for block in blocks)


def _end(der: bytes) -> float:
    body, _ = _read(der, _SEQUENCE)
    rest, _ = _read(body, _SEQUENCE)
    if rest[:1] == bytes([_VERSION]):
        rest = _read(rest, _VERSION)[1]
    for _ in ("serial number", "signature", "issuer"):
        rest = _read(rest, rest[0] if rest else _SEQUENCE)[1]
    validity, _ = _read(rest, _SEQUENCE)
    not_after = _read(validity, validity[0] if validity else _UTC_TIME)[1]
    return _time(not_after)


def _read(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Content of the element that `data` begins with, which has this tag, and what comes after it."""
    if len(data) < 2 or data[0] != tag:
        raise ValueError("its times cannot be read: it is no X.509 certificate")
    start, length = 2, data[1]
    if length & _LONG:
        start += length ^ _LONG
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("its times cannot be read: it ends early")
    return data[start : start + length], data[start + length :]


def _time(data: bytes) -> float:
    tag = data[0] if data else _UTC_TIME
    text = _read(data, tag)[0].decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY_FROM else '20'}{text}"
    elif tag != _GENERALIZED_TIME:
        raise ValueError("its times cannot be read: they are no times of X.509")
    read = datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ")
    return read.replace(tzinfo=datetime.UTC).timestamp()
