"""The rule that sites plan with, beside our sum:

    (weights + KV of all concurrent requests at their mean length) x 1.15 to 1.2  <=  80 % of the device

Turned around it promises a number of requests. It knows no framework, no page rounding, no scales, no places and no
largest step: its two percentages stand for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidemark_runtime.planning import capacity, page_layout

OVERHEADS = (0.15, 0.20)
"""Of weights and KV together: the smaller and the larger of what people add."""
DEVICE_SHARE = 0.8
"""Of the device's memory: no more than this is to be planned for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the rule says of one device."""

    request_kv_bytes: int
    """Of one request of mean length: 2 (K and V) x layers x KV heads x elements x bytes x tokens."""
    num_requests: int
    """With the larger overhead; 0 where the weights alone are too much."""
    num_requests_most: int
    """With the smaller overhead."""

    def needed_bytes(self, weights_bytes: int, users: int) -> int:
        """The device that the rule wants for `users`, with the larger overhead."""
        return math.ceil((weights_bytes + users * self.request_kv_bytes) * (1 + OVERHEADS[1]) / DEVICE_SHARE)


def promise(shape: capacity.ModelShape, kv_dtype: str, limit_bytes: int, mean_tokens: float) -> Promise:
    """`shape`: of one device (`capacity.divided`)."""
    item_bits = page_layout.KV_DTYPES[kv_dtype].item_bits
    token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * item_bits / 8
    request = math.ceil(token_bytes * mean_tokens)
    most, least = (
        max(0, math.floor((limit_bytes * DEVICE_SHARE / (1 + overhead) - shape.weights_bytes) / request))
        for overhead in (OVERHEADS[0], OVERHEADS[1])
    )
    return Promise(request_kv_bytes=request, num_requests=least, num_requests_most=most)


def verdict(promised: int, ours: int, bound_by: str) -> str:
    """One sentence: which of the two is safer here, and why."""
    if bound_by == "maxNumSeqs" and promised > ours:
        return (
            f"Ours ({ours}) is safer: it stops at maxNumSeqs, which the rule ({promised}) does not know; "
            "raise maxNumSeqs to use the rest of the memory."
        )
    if promised > ours:
        return (
            f"Ours ({ours}) is safer: the rule ({promised}) counts no framework, no scales and no rounding to pages, "
            "which are more here than its percentages."
        )
    if promised < ours:
        return (
            f"Both hold; the rule ({promised}) is more careful and leaves memory unused: ours ({ours}) counts every "
            "part and keeps only what memoryUtilization leaves."
        )
    return f"Both say {ours}."
