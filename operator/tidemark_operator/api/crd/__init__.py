"""The CustomResourceDefinition, rendered from the models: what they refuse the API server refuses too."""

from __future__ import annotations

from tidemark_operator.api.crd.definition import PATH, build, render

__all__ = ["PATH", "build", "render"]
