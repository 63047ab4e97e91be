"""What all tests of device ops need."""

from __future__ import annotations

import pytest
import quick_interpreter


@pytest.fixture(autouse=True)
def _quick_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_interpreter.install(monkeypatch)
