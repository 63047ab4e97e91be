"""The InferenceService resource: its models, how a document is read and what is said when it is wrong."""

from __future__ import annotations

from tidemark_operator.api.engine import Precision, ScalesRef
from tidemark_operator.api.files import load_file, load_text
from tidemark_operator.api.links import every as engine_links
from tidemark_operator.api.models import Hardware, Source, Toleration
from tidemark_operator.api.operations import ApiKeysRef
from tidemark_operator.api.parsing import parse
from tidemark_operator.api.service import InferenceService, Metadata, Spec

__all__ = [
    "ApiKeysRef",
    "Hardware",
    "InferenceService",
    "Metadata",
    "Precision",
    "ScalesRef",
    "Source",
    "Spec",
    "Toleration",
    "engine_links",
    "load_file",
    "load_text",
    "parse",
]
