"""Clusters for tests: the project's own bed, or the one that KUBECONFIG names.

fixture         what                                        with KUBECONFIG set
------------    ----------------------------------------    -----------------------
api_cluster     an API server                               that cluster
pod_cluster     a cluster whose pods run                    that cluster
api_bed         the bed: API server and controllers         the test is skipped
node_bed        the bed: a whole node                       the test is skipped
bench           operators and services on node_bed          the test is skipped

Take the first two unless a test needs what only a bed has: to stop its parts, to count audit events, to pretend
devices, to load images. A bed is started when the first test asks for it, and there is one at a time: tests of the
smaller bed run first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import operator_runner
import pytest
from bed import build, cluster, control_plane, layout, lifecycle, machine, running

AUDIT_POLICY = {
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    # The cluster's own parts are most of the traffic and say nothing about us.
    "rules": [
        {"level": "None", "users": [control_plane.PARTS_USER, "system:apiserver"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}
BEDS = {"api_bed": 0, "api_cluster": 0, "node_bed": 1, "pod_cluster": 1}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if item.path.is_relative_to(here)]
    for item in ours:
        item.add_marker("cluster")
    others = [item for item in items if item not in ours]
    items[:] = others + sorted(ours, key=_size)  # sorted() keeps the order of equals


def _size(item: pytest.Item) -> int:
    """Tests without a bed first, then those of the smaller one."""
    return max((BEDS[name] for name in getattr(item, "fixturenames", ()) if name in BEDS), default=-1)


class Slot:
    """Holds the one bed that runs."""

    def __init__(self, say: pytest.TerminalReporter | None) -> None:
        self._say = say
        self._running: running.Bed | None = None

    def start(self, options: layout.Options) -> running.Bed:
        self.stop()
        build.build(self.tell)
        bed = lifecycle.up(f"test-{options.size}-{os.getpid()}", options, owned=True)
        self.tell(f"{bed.name} is up, logs in {bed.layout.logs}")
        self._running = bed
        return bed

    def stop(self) -> None:
        if self._running is not None:
            lifecycle.down(self._running.name)
            self._running = None

    def tell(self, line: str) -> None:
        if self._say is not None:
            self._say.write_line(f"bed: {line}")


def given_kubeconfig() -> Path | None:
    """The cluster to use instead of a bed. One file: kubectl's list of files is not understood everywhere."""
    value = os.environ.get("KUBECONFIG", "")
    return Path(value).absolute() if value else None


@pytest.fixture(scope="session")
def _without_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in machine.PROXY_VARIABLES:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def _slot(_without_proxy: None, request: pytest.FixtureRequest) -> Iterator[Slot]:
    slot = Slot(request.config.pluginmanager.get_plugin("terminalreporter"))
    yield slot
    slot.stop()


@pytest.fixture(scope="session")
def needs_a_bed() -> None:
    """Skips where a cluster was given: then no bed is built."""
    if (given := given_kubeconfig()) is not None:
        pytest.skip(f"needs the project's own test bed; KUBECONFIG={given} names another cluster")


@pytest.fixture(scope="session")
def api_bed(needs_a_bed: None, _slot: Slot) -> running.Bed:
    return _slot.start(layout.Options(size="api", controllers=True, audit_policy=AUDIT_POLICY))


@pytest.fixture(scope="session")
def node_bed(needs_a_bed: None, _slot: Slot) -> running.Bed:
    return _slot.start(layout.Options(size="node", audit_policy=AUDIT_POLICY))


@pytest.fixture(scope="session")
def api_cluster(request: pytest.FixtureRequest) -> cluster.Cluster:
    return _given_or(request, "api_bed")


@pytest.fixture(scope="session")
def pod_cluster(request: pytest.FixtureRequest) -> cluster.Cluster:
    return _given_or(request, "node_bed")


def _given_or(request: pytest.FixtureRequest, bed: str) -> cluster.Cluster:
    if (given := given_kubeconfig()) is not None:
        return cluster.Cluster(given)
    found = request.getfixturevalue(bed)
    assert isinstance(found, cluster.Cluster)
    return found


@pytest.fixture(scope="module")
def image(node_bed: running.Bed) -> str:
    """What engine pods run: a stand-in that computes nothing."""
    return operator_runner.stand_in(node_bed)


@pytest.fixture
def bench(node_bed: running.Bed, image: str, tmp_path: Path) -> Iterator[operator_runner.Bench]:
    """A restricted namespace with room for operators and services."""
    with operator_runner.bench(node_bed, tmp_path, image) as made:
        yield made
