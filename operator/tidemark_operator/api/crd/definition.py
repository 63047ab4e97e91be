"""The whole CustomResourceDefinition, as a mapping and as the text that is checked in."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from tidemark_operator import names
from tidemark_operator.api import service
from tidemark_operator.api.crd import rules, schema, status

NAME = f"{names.PLURAL}.{names.GROUP}"
PATH = f"crds/{names.GROUP}_{names.PLURAL}.yaml"
"""Where the text lies, from the top of the repository."""

_HEAD = "# Rendered from the models in operator/tidemark_operator/api; change those and run `make render`.\n"


def build() -> dict[str, Any]:
    """The definition; a fresh mapping in which nothing is shared."""
    made: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": list(names.SHORT_NAMES),
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _whole()},
                    "subresources": {"status": {}, "scale": status.scale()},
                    "additionalPrinterColumns": status.columns(),
                }
            ],
        },
    }
    return copy.deepcopy(made)


def render() -> str:
    """The text of `PATH`: the same bytes for the same models."""
    return _HEAD + yaml.safe_dump(build(), sort_keys=False, width=120, allow_unicode=True)


def _whole() -> dict[str, Any]:
    whole: dict[str, Any] = {
        "type": "object",
        "description": "A language model that is served to OpenAI clients.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"`{names.API_VERSION}`."},
            "kind": {"type": "string", "description": f"`{names.KIND}`."},
            "metadata": {"type": "object"},
            "spec": {"description": "What is wanted.", **schema.of_model(service.Spec)},
            "status": status.schema(),
        },
    }
    rules.add(whole)
    return whole
