"""What was tried is known again, however an API server writes its numbers."""

from __future__ import annotations

import json
from typing import Any

import manifests
import pytest

from tidemark_operator import api
from tidemark_operator.plan import history


def as_an_api_server_keeps_it(value: Any) -> Any:
    """Whole numbers lose their point."""
    if isinstance(value, dict):
        return {key: as_an_api_server_keeps_it(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_an_api_server_keeps_it(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize("seconds", [59, 59.0, 0.5, 1e15])
def test_a_revision_that_is_read_back_is_the_same_revision(seconds: float) -> None:
    service = api.parse(manifests.small(overload={"maxQueueSeconds": seconds}))
    first = history.current(service, [])
    stored = as_an_api_server_keeps_it(json.loads(json.dumps(history.build(service, first))))
    known = history.read([stored])
    assert history.current(service, known) == known[0]
    assert known[0].hash == first.hash
