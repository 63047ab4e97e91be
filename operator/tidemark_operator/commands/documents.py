"""From a parsed manifest back to the document that is stored and sent."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api


def document_of(service: api.InferenceService) -> dict[str, Any]:
    """The manifest as it was written, without defaults, with its namespace."""
    document: dict[str, Any] = service.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["metadata"]["namespace"] = service.namespace
    return document
