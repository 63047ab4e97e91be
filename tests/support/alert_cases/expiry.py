"""Certificates and keys. In a unit test of rules the clock starts at 0."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat

_DAY = 86_400.0
_STEPS = 80


def _certificate(*days: float) -> made.Series:
    return engines("tidemark_certificate_expiry_timestamp_seconds", *(flat(day * _DAY, _STEPS) for day in days))


def _key(days: float) -> made.Series:
    return engines("tidemark_key_expiry_timestamp_seconds", flat(days * _DAY, _STEPS), key="batch")


CASES = {
    "TidemarkCertificateExpires": (
        fires("one of three has the old one", _certificate(100, 20, 100), 65, made.SERVICE, "19d 22h 55m 0s"),
        fires("it has ended", _certificate(-1), 65, made.SERVICE, "-1d 1h 5m 0s"),
        Case("in four weeks", _certificate(28), 65),
        Case(
            "a new one came within the hour",
            engines("tidemark_certificate_expiry_timestamp_seconds", [*flat(2 * _DAY, 30), *flat(90 * _DAY, 50)]),
            65,
        ),
    ),
    "TidemarkCertificateExpiresSoon": (
        fires("in two days", _certificate(2), 20, made.SERVICE, "1d 23h 40m 0s"),
        Case("in ten days", _certificate(10), 20),
    ),
    "TidemarkKeyExpires": (
        fires("in five days", _key(5), 65, {**made.SERVICE, "key": "batch"}, "4d 22h 55m 0s"),
        fires("it ended an hour ago", _key(-1 / 24), 65, {**made.SERVICE, "key": "batch"}, "-2h 5m 0s"),
        Case("it ended last week", _key(-7), 65),
        Case("in a month", _key(30), 65),
    ),
}
