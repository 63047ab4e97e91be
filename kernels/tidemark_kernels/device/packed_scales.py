"""Scales of a packed matrix, and the min or zero beside each, in as few bytes as say them exactly.

    float32        4 bytes each
    float16        2 bytes each, where that is exact: Q4_0, Q4_1, Q8_0, most of AWQ and GPTQ
    products       1 byte each, and a float16 for 256 inputs: Q4_K (32 inputs, with mins) and Q6_K (16 inputs) are made
                   of such, which their float32 scales still show

Nothing is kept beside the scales where it is the same everywhere: zeros of 8 (4 bits) or 0 (8 bits), or mins that are
-8 times the scale, as Q4_0 has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidemark_kernels.jit import packed_formats as formats

NO_OFFSET, MIN, ZERO = (int(each.value) for each in (formats.NO_OFFSET, formats.MIN, formats.ZERO))
FLOAT, HALF, SUPER = (int(each.value) for each in (formats.FLOAT_SCALES, formats.HALF_SCALES, formats.SUPER_SCALES))
SUPER_INPUTS = 256
"""Inputs that share the float16 of a product."""
_MIN_GROUP, _PLAIN_GROUP = 32, 16
"""Inputs of a group whose scales may be products: with mins (Q4_K), and without (Q6_K)."""
_MIN_CODES, _PLAIN_CODES = (0, 63), (-128, 127)
"""Least and largest of the bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedScales:
    """As `packed_formats.affine` reads them: outputs beside each other, groups below."""

    words: torch.Tensor
    """float32 (FLOAT), or int32 words of two float16 (HALF) or of bytes (SUPER)."""
    supers: torch.Tensor | None
    """int32 words of two float16 `[K / 256, padded_outputs]` (SUPER)."""
    offset: int
    """NO_OFFSET, MIN or ZERO."""
    kind: int
    """FLOAT, HALF or SUPER."""
    centre: float
    """The zero of all codes where `offset` is NO_OFFSET."""

    def unpacked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scales, and mins or zeros: float32 `[groups or more, padded_outputs]` each; plain torch."""
        if self.kind == FLOAT:
            parts = self.words if self.offset == NO_OFFSET else self.words.view(-1, 2, self.words.shape[1])
            return (parts, self._centres(parts)) if self.offset == NO_OFFSET else (parts[:, 0], parts[:, 1])
        if self.kind == HALF:
            low, high = _halves(self.words)
            if self.offset != NO_OFFSET:
                return low, high
            scales = torch.stack((low, high), dim=1).flatten(0, 1)
            return scales, self._centres(scales)
        if self.supers is None:
            raise ValueError("supers are None, expected words of two float16 beside scales that are products")
        low, high = _halves(self.supers)
        codes = self.words.contiguous().view(torch.int8).view(*self.words.shape, 4)
        if self.offset == MIN:
            ordered = codes.view(*self.words.shape, 2, 2).permute(3, 0, 2, 1).flatten(1, 2).float()
            wide = (each.repeat_interleave(SUPER_INPUTS // _MIN_GROUP, dim=0) for each in (low, high))
            scales, mins = (code * each for code, each in zip(ordered, wide, strict=True))
            return scales, -mins
        scales = codes.permute(0, 2, 1).flatten(0, 1) * low.repeat_interleave(SUPER_INPUTS // _PLAIN_GROUP, dim=0)
        return scales, self._centres(scales)

    def _centres(self, scales: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scales, self.centre)


def pack(
    scales: torch.Tensor,
    mins: torch.Tensor | None,
    zeros: torch.Tensor | None,
    is_int4: bool,
    group_size: int,
    num_rows: int,
    width: int,
) -> PackedScales:
    """From float32 `[N, K / group_size]`; exact. Padded with zeros to `num_rows` groups and `width` outputs."""
    centre = 8.0 if is_int4 else 0.0
    offset, beside = _offset_of(scales, mins, zeros, centre)
    parts = [scales] if beside is None else [scales, beside]
    laid = [_laid(part, num_rows, width) for part in parts]
    if all(_is_half(part) for part in laid):
        return PackedScales(_half_words(laid), None, offset, HALF, centre)
    products = _products(laid, offset, group_size)
    if products is not None:
        return PackedScales(*products, offset, SUPER, centre)
    words = torch.stack(laid, dim=1).flatten(0, 1)
    return PackedScales(words, None, offset, FLOAT, centre)


def _offset_of(
    scales: torch.Tensor, mins: torch.Tensor | None, zeros: torch.Tensor | None, centre: float
) -> tuple[int, torch.Tensor | None]:
    if mins is not None:
        return (NO_OFFSET, None) if torch.equal(mins, scales * -centre) else (MIN, mins)
    zeros = torch.zeros_like(scales) if zeros is None else zeros
    return (NO_OFFSET, None) if bool((zeros == centre).all()) else (ZERO, zeros)


def _laid(part: torch.Tensor, num_rows: int, width: int) -> torch.Tensor:
    """`[N, groups]` -> `[num_rows, width]`."""
    laid = part.new_zeros(num_rows, width)
    laid[: part.shape[1], : part.shape[0]] = part.t()
    return laid


def _is_half(part: torch.Tensor) -> bool:
    return torch.equal(part.half().float(), part)


def _half_words(parts: list[torch.Tensor]) -> torch.Tensor:
    """Of a scale and what is beside it, or of two groups' scales."""
    if len(parts) == 1:
        scales = parts[0]
        if len(scales) % 2:
            scales = torch.cat((scales, torch.zeros_like(scales[:1])))
        parts = [scales[::2], scales[1::2]]
    return torch.stack(parts, dim=-1).half().view(torch.int32).squeeze(-1)


def _halves(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = words.contiguous().view(torch.float16).view(*words.shape, 2).float()
    return pairs[..., 0], pairs[..., 1]


def _products(parts: list[torch.Tensor], offset: int, group_size: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Bytes and float16 whose products are `parts`, if there are such."""
    expected, limits = (_MIN_GROUP, _MIN_CODES) if offset == MIN else (_PLAIN_GROUP, _PLAIN_CODES)
    a_super = SUPER_INPUTS // expected
    if offset == ZERO or group_size != expected or len(parts[0]) % a_super:
        return None
    signed = [parts[0], -parts[1]] if offset == MIN else parts
    found = [_factored(part.view(-1, a_super, part.shape[1]), *limits) for part in signed]
    factors = [each for each in found if each is not None]
    if len(factors) < len(found):
        return None
    codes = [code.flatten(0, 1) for code, _ in factors]
    if offset == MIN:
        together = torch.stack((codes[0][::2], codes[1][::2], codes[0][1::2], codes[1][1::2]), dim=-1)
    else:
        together = torch.stack([codes[0][start::4] for start in range(4)], dim=-1)
    supers = [each for _, each in factors]
    return together.view(torch.int32).squeeze(-1), _half_words([supers[0], supers[-1]])


def _factored(groups: torch.Tensor, least: int, largest: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """float32 `[supers, groups, outputs]` as int8 codes of that shape times a float16 `[supers, outputs]`, exactly.

    The group with the largest magnitude has some code: each is tried. In files it mostly is the one that comes first
    here: 63 of Q4_K, -128 of Q6_K.
    """
    top = groups.gather(1, groups.abs().argmax(dim=1, keepdim=True)).squeeze(1)
    unit = torch.zeros_like(top)
    is_found = top == 0
    for code in sorted(range(least, largest + 1), key=lambda each: (-abs(each), each)):
        if code == 0 or bool(is_found.all()):
            break
        one = (top / code).half().float()
        codes = (groups / one.unsqueeze(1)).round().clamp(least, largest)
        fits = (codes * one.unsqueeze(1) == groups).all(dim=1) & (one != 0) & ~is_found
        unit = torch.where(fits, one, unit)
        is_found |= fits
    if not bool(is_found.all()):
        return None
    divisor = torch.where(unit == 0, 1.0, unit).unsqueeze(1)
    return (groups / divisor).round().to(torch.int8), unit
