"""What several folders of tests need: the real model, and a real server with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import live
import pytest

from tidemark_runtime import model_store

MODEL = "smollm2-135m"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of the small real model; fetched once into the usual store."""
    return model_store.fetch(MODEL)


@pytest.fixture(scope="session")
def live_server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.Server]:
    """The real server with the real engine and the real model, for tests that leave it as it is."""
    with live.serving(tmp_path_factory.mktemp("serve"), str(smollm2_path), "--served-name", MODEL) as server:
        yield server


@pytest.fixture(scope="session")
def base_url(live_server: live.Server) -> str:
    return live_server.url
