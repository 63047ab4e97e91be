"""The Secret with the token that `/admin` of this service's engines asks for: written by the operator, never read."""

from __future__ import annotations

import base64
from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import facts as facts_
from tidemark_operator.plan import objects


def build(service: api.InferenceService, facts: facts_.Facts) -> dict[str, Any]:
    """`data`, not `stringData`: the API server keeps what was applied, so that applying it again changes nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": objects.metadata(service, names.admin_secret(service.name)),
        "type": "Opaque",
        "data": {names.ADMIN_TOKEN_FILE: base64.b64encode(facts.admin_token.encode()).decode()},
    }
