"""The same weights in transformers, read once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reference_model


@pytest.fixture(scope="session")
def reference(smollm2_path: Path) -> Any:
    """LlamaForCausalLM in float32."""
    return reference_model.load(smollm2_path)
