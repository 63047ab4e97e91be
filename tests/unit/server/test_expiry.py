"""Certificates and keys that end: when is told, a new file is noticed, and a key that has ended opens nothing."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import shutil
import ssl
from pathlib import Path

import pytest
from prometheus_client import parser

from tidemark_runtime import config, errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.server import certificate_times, key_lines, keys, tls

CERTIFICATES = Path(__file__).parents[2] / "support" / "certificates"
END_OF_ONE = datetime.datetime(2126, 11, 6, 0, 56, 34, tzinfo=datetime.UTC).timestamp()
"""As openssl says of `one.crt`."""


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 128 + size]) + length.to_bytes(size) + content


def certificate(not_after: bytes, tag: int = 0x17, *, version: bool = True, issuer: bytes = b"") -> str:
    """The outline of one, as far as it is read."""
    validity = element(0x30, element(0x17, b"200101000000Z") + element(tag, not_after))
    parts = element(0x02, b"\1") + element(0x30, b"") + element(0x30, issuer) + validity
    der = element(0x30, element(0x30, (element(0xA0, b"\2\1\2") if version else b"") + parts))
    return ssl.DER_cert_to_PEM_cert(der)


def unix(*moment: int) -> float:
    return datetime.datetime(*moment, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize(
    ("pem", "expected"),
    [
        (certificate(b"270131235959Z"), unix(2027, 1, 31, 23, 59, 59)),
        (certificate(b"991231235959Z"), unix(1999, 12, 31, 23, 59, 59)),
        (certificate(b"491231235959Z"), unix(2049, 12, 31, 23, 59, 59)),
        (certificate(b"20500101000000Z", 0x18), unix(2050, 1, 1)),
        (certificate(b"270131235959Z", version=False), unix(2027, 1, 31, 23, 59, 59)),
        (certificate(b"270131235959Z", issuer=b"x" * 70_000), unix(2027, 1, 31, 23, 59, 59)),
        (certificate(b"300101000000Z") + "words\n" + certificate(b"280101000000Z"), unix(2028, 1, 1)),
        ((CERTIFICATES / "one.crt").read_text(), END_OF_ONE),
    ],
)
def test_when_the_first_of_a_chain_ends(pem, expected):
    assert certificate_times.first_end(pem) == expected


@pytest.mark.parametrize(
    "pem",
    [
        "",
        (CERTIFICATES / "one.key").read_text(),
        certificate(b"270131235959Z", 0x04),
        certificate(b"not a time..Z"),
        ssl.DER_cert_to_PEM_cert(b""),
        ssl.DER_cert_to_PEM_cert(b"\x30\x05\x30\x03\x02\x01"),
        ssl.DER_cert_to_PEM_cert(base64.b64decode("MIIB")),
    ],
)
def test_what_is_no_certificate_is_refused(pem):
    with pytest.raises(ValueError):
        certificate_times.first_end(pem)


def test_a_new_certificate_has_its_own_end(tmp_path, clock, monkeypatch):
    for name in ("crt", "key"):
        shutil.copy(CERTIFICATES / f"one.{name}", tmp_path / f"tls.{name}")
    held = tls.Certificate(tmp_path / "tls.crt", tmp_path / "tls.key", clock)
    assert held.ends_at == END_OF_ONE
    for name in ("crt", "key"):
        shutil.copy(CERTIFICATES / f"two.{name}", tmp_path / f"tls.{name}")
    monkeypatch.setattr(certificate_times, "first_end", lambda _: 123.0)
    clock.now += 2
    held.refresh()
    assert held.ends_at == 123.0
    (tmp_path / "tls.crt").write_text("broken")
    clock.now += 2
    held.refresh()
    assert (held.ends_at, held.problem is not None) == (123.0, True), "that of the certificate in force"


# ---- keys --------------------------------------------------------------------------------------------------------


def test_a_key_ends_with_its_last_day():
    (key,) = key_lines.parse("k name=ann until=2027-01-31", attributes=True)
    assert key.until == datetime.date(2027, 1, 31)
    assert key.ends_at == unix(2027, 2, 1)
    (without,) = key_lines.parse("k", attributes=True)
    assert without.ends_at is None


@pytest.mark.parametrize("value", ["", "2027", "2027-02-30", "31.01.2027", "2027-1-31", "20270131", "2027-01-31T10:00"])
def test_another_end_is_refused(value):
    with pytest.raises(ValueError, match=r"line 2 has until='.*', expected a day .* such as 2027-01-31"):
        key_lines.parse(f"a\nk until={value}", attributes=True)


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("old-key name=old until=2027-01-31\nnameless until=2027-03-01\nfor-good name=good\n")
    return path


@pytest.fixture
def settings(settings, key_file):
    return dataclasses.replace(settings, server=config.ServerConfig(api_keys_file=str(key_file)))


async def ask(http, key: str):
    return await http.get(paths.MODELS_PATH, headers={"authorization": f"Bearer {key}"})


@pytest.fixture
def today(shared, monkeypatch):
    def be(*moment: int) -> None:
        monkeypatch.setattr(type(shared), "unix_time", lambda _: int(unix(*moment)))

    return be


async def test_a_key_opens_until_the_end_of_its_last_day_and_then_says_that_it_has_ended(http, today):
    today(2027, 1, 31, 23, 59, 59)
    assert (await ask(http, "old-key")).status_code == 200
    today(2027, 2, 1)
    answer = await ask(http, "old-key")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "This API key has ended: its last day was 2027-01-31, by UTC." in answer.json()["error"]["message"]
    assert "old-key" not in answer.text
    assert (await ask(http, "for-good")).status_code == 200
    text = (await http.get("/metrics")).text
    assert 'tidemark_requests_rejected_total{reason="unauthorized"} 1.0' in text


async def test_a_later_end_is_taken_over_while_it_runs(http, today, key_file, clock):
    today(2027, 2, 1)
    assert (await ask(http, "old-key")).status_code == 401
    key_file.write_text("old-key name=old until=2027-12-31\n")
    clock.now += 2
    assert (await ask(http, "old-key")).status_code == 200


async def test_the_ends_are_in_metrics_and_status(http, key_file, clock):
    async def told() -> dict:
        families = parser.text_string_to_metric_families((await http.get("/metrics")).text)
        (family,) = [each for each in families if each.name == "tidemark_key_expiry_timestamp_seconds"]
        found = {sample.labels["key"]: sample.value for sample in family.samples}
        body = (await http.get("/status")).json()
        assert body["keysExpire"] == found
        assert body["certificateExpires"] is None
        return found

    found = await told()
    assert found.pop("old") == unix(2027, 2, 1)
    ((name, at),) = found.items()
    assert name.startswith("sha256:")
    assert at == unix(2027, 3, 2)
    key_file.write_text("new-key name=new until=2028-01-01\nfor-good name=good\n")
    clock.now += 2
    assert await told() == {"new": unix(2028, 1, 2)}


async def test_b087_series_of_each_key_are_there_before_its_first_request(http, key_file, clock):
    text = (await http.get("/metrics")).text
    assert 'tidemark_key_requests_total{key="good",outcome="failed"} 0.0' in text
    key_file.write_text("new-key name=new\n")
    clock.now += 2
    await http.get("/metrics")
    assert 'tidemark_key_requests_total{key="new",outcome="failed"} 0.0' in (await http.get("/metrics")).text


def test_a_file_with_a_wrong_end_is_refused_at_the_start(tmp_path, clock):
    path = tmp_path / "keys"
    path.write_text("k until=soon\n")
    with pytest.raises(errors.ConfigError, match="until='soon', expected a day as year-month-day"):
        keys.KeyFile(path, clock)
