"""What the `quantization_config` of an AWQ or GPTQ checkpoint says. Needs no torch.

Everything that would change a weight's value is checked: a field that is ignored silently is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import errors

AWQ, GPTQ = "awq", "gptq"
METHODS = (AWQ, GPTQ)
BITS: Mapping[str, tuple[int, ...]] = {AWQ: (4,), GPTQ: (4, 8)}
GROUP_MULTIPLE = 16
"""The kernel's: a group must have a multiple of so many inputs."""
WHOLE_ROW = -1
"""As `group_size`: one group for all inputs of a row."""
_REQUANTIZE = "Take a checkpoint of another format, or the unquantized model with int8_weight_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How the matrices of a checkpoint are packed."""

    method: str
    """One of METHODS."""
    bits: int
    group_size: int
    """Inputs that share a scale and a zero; WHOLE_ROW: all of them."""
    zero_offset: int = 0
    """What is added to stored zeros: 1 in GPTQ's first format, which stores them less one."""
    act_order: bool = False
    """GPTQ's desc_act: inputs were ordered by activation, and `g_idx` says which group each belongs to."""

    def group_of(self, num_inputs: int) -> int:
        return num_inputs if self.group_size == WHOLE_ROW else self.group_size


def parse(config: Mapping[str, Any], where: str) -> Packing | None:
    """Of a checkpoint's `config.json`; None where nothing is packed. `where`: the file, for messages.

    Raises UnsupportedModel for a method or variant that is not read, CorruptModel for a field that makes no sense.
    """
    section = config.get("quantization_config")
    if not section:
        return None
    if not isinstance(section, Mapping):
        raise errors.CorruptModel(str(errors.Problem(f"{where} quantization_config", section, "an object")))
    fields = _Section(section, f"{where} quantization_config.")
    method = fields.lower("quant_method", "")
    if method not in METHODS:
        raise fields.unsupported("quant_method", fields.get("quant_method"), "awq or gptq", _REQUANTIZE)
    return _awq(fields) if method == AWQ else _gptq(fields)


def of_old_gptq(section: Mapping[str, Any]) -> dict[str, Any]:
    """As `quantization_config`, from the file that AutoGPTQ wrote beside `config.json` before it wrote that."""
    return {"quantization_config": {"quant_method": GPTQ, **section}}


def _awq(fields: _Section) -> Packing:
    fields.only("version", "gemm", "gemm", "Pack it with AutoAWQ's gemm kernel, which is its default")
    fields.only("backend", "autoawq", "autoawq", _REQUANTIZE)
    fields.flag("zero_point", True)
    return Packing(method=AWQ, bits=fields.bits(AWQ, "bits", "w_bit"), group_size=fields.group("q_group_size"))


def _gptq(fields: _Section) -> Packing:
    remedy = "Convert it to gptq or gptq_v2, which all GPTQ tools write"
    key = "checkpoint_format" if fields.get("checkpoint_format") is not None else "format"
    stored = fields.lower(key, "gptq")
    if stored not in ("gptq", "gptq_v2"):
        raise fields.unsupported(key, fields.get(key), "gptq or gptq_v2", remedy)
    if fields.flag("is_marlin_format", False):
        raise fields.unsupported("is_marlin_format", True, "false", remedy)
    fields.only("pack_dtype", "int32", "int32", remedy)
    if fields.get("dynamic"):
        raise fields.unsupported(
            "dynamic", fields.get("dynamic"), "the same bits and groups in all layers", _REQUANTIZE
        )
    return Packing(
        method=GPTQ,
        bits=fields.bits(GPTQ, "bits"),
        group_size=fields.group(),
        zero_offset=1 if stored == "gptq" else 0,
        act_order=fields.flag("desc_act", False),
    )


class _Section:
    """Typed access; every refusal names the key, the value, what was expected and what to do."""

    def __init__(self, values: Mapping[str, Any], prefix: str) -> None:
        self._values = values
        self._prefix = prefix

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def lower(self, key: str, default: str) -> str:
        seen = self.get(key)
        return default if seen is None else str(seen).lower()

    def only(self, key: str, default: str, wanted: str, remedy: str) -> None:
        if self.lower(key, default) != wanted:
            raise self.unsupported(key, self.get(key), wanted, remedy)

    def flag(self, key: str, default: bool) -> bool:
        seen = self.get(key)
        if seen is not None and not isinstance(seen, bool):
            raise errors.CorruptModel(str(errors.Problem(f"{self._prefix}{key}", seen, "true or false")))
        return default if seen is None else seen

    def bits(self, method: str, *keys: str) -> int:
        key = next((key for key in keys if self.get(key) is not None), keys[0])
        allowed = BITS[method]
        if self.get(key) not in allowed or isinstance(self.get(key), bool):
            raise self.unsupported(key, self.get(key), " or ".join(map(str, allowed)), _REQUANTIZE)
        return int(self.get(key))

    def group(self, *other_keys: str) -> int:
        key = next((key for key in other_keys if self.get(key) is not None), "group_size")
        seen = self.get(key)
        whole = isinstance(seen, int) and not isinstance(seen, bool)
        if not whole or (seen != WHOLE_ROW and (seen < 1 or seen % GROUP_MULTIPLE)):
            expected = f"-1 or a multiple of {GROUP_MULTIPLE}, such as 32, 64 or 128"
            raise self.unsupported(key, seen, expected, _REQUANTIZE)
        return int(seen)

    def unsupported(self, key: str, seen: object, expected: str, remedy: str) -> errors.UnsupportedModel:
        return errors.UnsupportedModel(str(errors.Problem(f"{self._prefix}{key}", seen, expected, remedy)))
