"""A pod that waits for what the manifest names: the status says so in words, and it is over once it is there."""

from __future__ import annotations

import operator_runner
import pytest

NAME = operator_runner.NAME
MAP = {"precision.yaml": "rules: [{layers: 0, kind: k}]\n"}

pytestmark = pytest.mark.timeout(600)


def test_a_map_that_is_missing_is_named_and_may_come_later(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.apply(operator_runner.small(NAME, kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "no-map"}}}))
    said = bench.until_condition(NAME, "Ready", "False", "ConfigMapNotFound")["message"]
    assert "ConfigMap no-map" in said
    assert "spec.kvCache.precision.mapRef" in said
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "no-map"}, "data": MAP})
    bench.until_settled(NAME)


def test_keys_that_are_missing_are_named(bench: operator_runner.Bench) -> None:
    """B065."""
    bench.start()
    bench.apply(operator_runner.small(NAME, access={"apiKeysSecretRef": {"name": "no-keys"}}))
    said = bench.until_condition(NAME, "Degraded", "True", "SecretNotFound")["message"]
    assert "Secret no-keys" in said
    assert "spec.access.apiKeysSecretRef" in said
