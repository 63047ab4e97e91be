"""What answers to probes mean."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.cluster.local import probes, translate

CONTAINER: dict[str, Any] = {
    "name": "engine",
    "ports": [{"name": "http", "containerPort": 8000}],
    "readinessProbe": {"httpGet": {"path": "/r", "port": "http"}, "periodSeconds": 2, "failureThreshold": 3},
}


def probe() -> probes.Probe:
    found = probes.parse(CONTAINER, "readinessProbe")
    assert found is not None
    return found


def test_a_probe_is_read_with_kubernetes_defaults() -> None:
    assert probe() == probes.Probe("/r", 8000, 2.0, 1.0, 6.0, 0.0)
    assert probes.parse(CONTAINER, "livenessProbe") is None


@pytest.mark.parametrize(
    ("spec", "expected"), [({}, "http"), ({"scheme": "HTTP"}, "http"), ({"scheme": "HTTPS"}, "https")]
)
def test_a_probe_speaks_as_the_container_does(spec: dict[str, Any], expected: str) -> None:
    found = probes.parse({**CONTAINER, "livenessProbe": {"httpGet": {"port": "http", **spec}}}, "livenessProbe")
    assert found is not None
    assert found.scheme == expected


@pytest.mark.parametrize("wrong", [{"tcpSocket": {"port": 1}}, {"httpGet": {"path": "/", "port": "none"}}])
def test_a_probe_that_cannot_be_made_here_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(translate.CannotRun, match="livenessProbe of container 'engine' is not an httpGet"):
        probes.parse({**CONTAINER, "livenessProbe": wrong}, "livenessProbe")


def test_without_a_probe_it_passes() -> None:
    verdict = probes.Verdict(None, 0)
    assert verdict.passing
    assert not verdict.failed(1e9)


def test_it_passes_with_the_first_success_and_fails_only_after_the_whole_threshold() -> None:
    verdict = probes.Verdict(probe(), 0)
    assert not verdict.passing
    verdict.observe(True, 1)
    assert verdict.passing
    for second in (2, 3, 7.9):
        verdict.observe(False, second)
        assert verdict.passing
    verdict.observe(False, 8)
    assert not verdict.passing
    assert verdict.failed(8)
    verdict.observe(True, 9)
    assert verdict.passing


def test_one_success_forgives_earlier_failures() -> None:
    verdict = probes.Verdict(probe(), 0)
    for second, success in ((5, False), (5.5, True), (6, False), (11, False)):
        verdict.observe(success, second)
    assert not verdict.failed(11.9)
    assert verdict.failed(12)


def test_never_answering_counts_from_the_start() -> None:
    verdict = probes.Verdict(probe(), 100)
    assert not verdict.failed(105.9)
    assert verdict.failed(106)
