"""Every case of every device op, by compiled code on a card, against its float64 reference. `make test-gpu` runs it."""

from __future__ import annotations

from collections.abc import Iterator

import device_cases
import ferry
import kernel_case
import pytest
import torch
from triton import knobs

WITHOUT = "" if torch.cuda.is_available() else "no card is here (torch.cuda.is_available() is False)"
if not WITHOUT and knobs.runtime.interpret:
    WITHOUT = "TRITON_INTERPRET is 1: kernels would be interpreted; run `make test-gpu`"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(WITHOUT), reason=WITHOUT),
    # Triton 3.9 warns of a default of its next version where a launch does not name it.
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset"),
]


@pytest.fixture(scope="module", autouse=True)
def _on_the_card() -> Iterator[None]:
    if WITHOUT:
        yield
        return
    with ferry.ferried(torch.device("cuda:0")):
        yield


@pytest.mark.parametrize("case", device_cases.cases(), ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)
