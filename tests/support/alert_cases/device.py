"""Cards: faults, heat, memory that grows."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import Case, engines, fires, flat, merged, ramp

_NEVER = flat(0)
_CARD = {**made.engine_labels(), "device": "0"}
_FIRST = [*flat(0, 20), *flat(1, 41)]
_GIB = 2.0**30


def _xid(number: str, values: made.Values) -> made.Series:
    name = "tidemark_device_xid_errors_total"
    return merged(
        engines(name, values, _NEVER, _NEVER, device="0", xid=number),
        engines(name, _NEVER, device="1", xid=number),
    )


def _degrees(*values: made.Values) -> made.Series:
    return engines("tidemark_device_temperature_celsius", *values, device="0")


def _used(values: made.Values) -> made.Series:
    return engines("tidemark_device_memory_used_bytes", values, flat(60 * _GIB, 80), flat(60 * _GIB, 80), device="0")


CASES = {
    "TidemarkDeviceErrors": (
        fires("the first one ever: it fell off the bus", _xid("79", _FIRST), 21, {**_CARD, "xid": "79"}, "1"),
        fires("B087: born with it", _xid("48", [None] * 20 + flat(1, 41)), 21, {**_CARD, "xid": "48"}, "1"),
        Case("a program's fault", _xid("31", _FIRST), 21),
        Case("long ago", _xid("79", flat(2)), 21),
        Case("never", _xid("79", _NEVER), 21),
    ),
    "TidemarkDeviceHot": (
        fires("one of three", _degrees(flat(88), flat(70), flat(70)), 20, _CARD, "88"),
        fires("it cools for a moment", _degrees([*flat(88, 18), 84, *flat(88, 42)], _NEVER, _NEVER), 20, _CARD, "88"),
        Case("warm", _degrees(flat(80)), 20),
        Case("for a moment", _degrees([*flat(70, 10), *flat(90, 6), *flat(70, 45)]), 20),
    ),
    "TidemarkDeviceMemoryGrows": (
        fires("100 MiB an hour", _used(ramp(_GIB / 60, 80, 60 * _GIB)), 50, _CARD, "102.4Mi", "10m"),
        Case("level, and full", _used(flat(79 * _GIB, 80)), 50, (), "10m"),
        Case("it loads", _used([*flat(_GIB, 30), *flat(60 * _GIB, 50)]), 40, (), "10m"),
        Case(
            "it loaded, and grows within the same hours",
            _used([*flat(_GIB, 5), *ramp(_GIB / 6, 75, 60 * _GIB)]),
            40,
            (),
            "10m",
        ),
    ),
}
