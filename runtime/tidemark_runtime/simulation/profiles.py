"""PROFILE: what is simulated. `DEVICE/MODEL` by their names, or a file.

l40s/8b                                   names of `devices.DEVICES` and `models.MODELS`

device: l40s                              a file with figures of one's own: names, or mappings; in a mapping,
model: {base: 8b, weightsBytes: 9e9}      `base` names the one whose figures stand where it says nothing

model: smollm2-135m                       a file with measured steps: prices in seconds, as a running engine has
stepSeconds: {base: 0.004, decode: ...}   fitted them, and the pages it has
pages: {num: 4096, numSwap: 0, copySeconds: 0}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.simulation import devices, fields, models

KEY = "PROFILE"
PAGES_MOST = 1 << 24
"""Of the slab, and of the swap space: 16 million, 32 TiB of an 8B model's. The engine's own lists of them take some 50
bytes a page."""
EXAMPLE = "`{device: l40s, model: 8b}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Of a step, in seconds: `core.step_time.StepTime.prices`."""

    base: float
    decode: float
    prompt_token: float
    token_read: float
    pair: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A running engine, as far as its scheduler can tell."""

    prices: Prices
    num_pages: int
    num_swap_pages: int
    page_copy_seconds: float
    host_seconds: float
    """A step's work on the host that a device does not wait for but a client does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Exactly one of `device` and `measured` is there."""

    name: str
    model: models.Model
    device: devices.Device | None = None
    measured: Measured | None = None


def load(text: str) -> Profile:
    """`DEVICE/MODEL`, or the path of a file. Raises `ConfigError` with every problem."""
    device, separator, model = text.partition("/")
    if separator and "." not in text and device in devices.DEVICES and model in models.MODELS:
        return Profile(name=text, model=models.MODELS[model], device=devices.DEVICES[device])
    path = Path(text)
    if path.suffix in (".yaml", ".yml", ".json") or path.is_file():
        values = fields.read_mapping(path, KEY, EXAMPLE)
        return fields.parsed(lambda problems: _parse(fields.Fields("", values, problems), path.stem))
    raise errors.ConfigError([_unknown(text, device, separator, model)])


def _unknown(text: str, device: str, separator: str, model: str) -> errors.Problem:
    if separator and device in devices.DEVICES:
        return errors.Problem(KEY, text, f"a model after {device}/: {fields.one_of(models.MODELS)}", _FILE)
    if separator and model in models.MODELS:
        return errors.Problem(KEY, text, f"a device before /{model}: {fields.one_of(devices.DEVICES)}", _FILE)
    expected = (
        f"DEVICE/MODEL such as l40s/8b, with a device of {', '.join(devices.DEVICES)} and a model of "
        f"{', '.join(models.MODELS)}"
    )
    return errors.Problem(KEY, text, expected, _FILE)


_FILE = "Or name a YAML or JSON file with figures of your own."


def _parse(found: fields.Fields, name: str) -> Profile:
    model = _named_or_given(found, "model", models.MODELS, models.parse)
    name = found.text("name", name)
    if found.has("device") == found.has("stepSeconds"):
        seen = "both" if found.has("device") else "neither"
        found.problem("device", seen, "either device (published figures) or stepSeconds (measured prices)")
        return Profile(name=name, model=models.MODELS["8b"])
    if found.has("device"):
        device = _named_or_given(found, "device", devices.DEVICES, devices.parse)
        found.close()
        return Profile(name=name, model=model or models.MODELS["8b"], device=device)
    measured = _measured(found)
    found.close()
    return Profile(name=name, model=model or models.MODELS["8b"], measured=measured)


def _named_or_given(found: fields.Fields, name: str, known: Any, parse: Any) -> Any:
    """A known name, or a mapping, with `base` or without; None after a problem."""
    value = found.raw(name)
    if isinstance(value, str):
        if value in known:
            return known[value]
        found.problem(name, value, fields.one_of(known), "Or give a mapping with its figures.")
        return None
    part = fields.Fields(found.full(name), value, found.problems, f"{fields.one_of(known)}, or a mapping")
    if not isinstance(value, dict):
        return None
    base = part.raw("base")
    if base is not None and base not in known:
        part.problem("base", base, fields.one_of(known), "Or leave it out, and give every figure.")
        return None
    return parse(part, known.get(base))


def _measured(found: fields.Fields) -> Measured | None:
    prices = found.part("stepSeconds")
    pages = found.part("pages")
    if pages is None:
        found.problem("pages", None, "{num: pages of the slab}", "The engine's /status shows them.")
    if prices is None or pages is None:
        return None
    measured = Measured(
        prices=Prices(
            base=prices.number("base"),
            decode=prices.number("decode"),
            prompt_token=prices.number("promptToken"),
            token_read=prices.number("tokenRead"),
            pair=prices.number("pair"),
        ),
        num_pages=pages.whole("num", least=1, most=PAGES_MOST),
        num_swap_pages=pages.whole("numSwap", 0, most=PAGES_MOST),
        page_copy_seconds=pages.number("copySeconds", 0.0),
        host_seconds=found.number("hostSeconds", 0.0),
    )
    prices.close()
    pages.close()
    return measured
