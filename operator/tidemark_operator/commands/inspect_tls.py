"""When the certificate ends that an address shows: a handshake and nothing else. No Secret is read, nothing is trusted.

Of X.509 only the way to `notAfter` is walked (RFC 5280, 4.1): Certificate, TBSCertificate, then past version, serial
number, algorithm and issuer to the two times.
"""

from __future__ import annotations

import datetime
import socket
import ssl
from urllib import parse

from tidemark_operator.inspection import facts

TIMEOUT_SECONDS = 5.0
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_HTTPS = 443


def certificate_of(url: str) -> facts.Certificate | None:
    """None for plain HTTP. A handshake that fails is told in `problem`."""
    parts = parse.urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return None
    return shown_by(parts.hostname, parts.port or _HTTPS)


def shown_by(host: str, port: int) -> facts.Certificate:
    """What a server shows to whoever asks; whether it is trusted is not the question here, and it is expired when it
    matters most."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    name = None if _is_address(host) else host
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except OSError as error:  # ssl.SSLError is one
        return facts.Certificate(where=where, problem=str(error) or type(error).__name__)
    if not shown:
        return facts.Certificate(where=where, problem="it showed no certificate")
    try:
        return facts.Certificate(where=where, not_after=not_after(shown))
    except ValueError as error:
        return facts.Certificate(where=where, problem=f"its certificate cannot be read: {error}")


def not_after(certificate: bytes) -> datetime.datetime:
    """Of one certificate in DER. Raises `ValueError`."""
    tag, body, _ = _read(certificate)
    tag_of_body, fields, _ = _read(body)
    if tag != _SEQUENCE or tag_of_body != _SEQUENCE:
        raise ValueError("not a certificate in DER")
    tag, _, rest = _read(fields)
    for _ in range(3 if tag == _VERSION else 2):  # serial number, algorithm, issuer
        _, _, rest = _read(rest)
    _, validity, _ = _read(rest)
    _, _, rest = _read(validity)
    tag, text, _ = _read(rest)
    return _time(tag, text.decode("ascii"))


def _read(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and what follows it."""
    if len(data) < 2:
        raise ValueError("it ends too soon")
    tag, size, start = data[0], data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("it ends too soon")
    return tag, data[start : start + size], data[start + size :]


def _time(tag: int, text: str) -> datetime.datetime:
    """UTCTime has two digits of the year, and means 1950 to 2049; GeneralizedTime has four."""
    if tag == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= 50 else '20'}{text}"
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
