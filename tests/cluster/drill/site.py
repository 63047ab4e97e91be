"""A site as the documentation has it: the chart, a service with the real engine, Prometheus and Alertmanager beside.

Prometheus and Alertmanager are Debian's, processes of this machine, from which a bed's pods are reached. They run with
the rendered files; `clock` makes every duration in these so many times shorter.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chart
import httpx
import yaml
from alerting import inbox, programs, rendered, rule_clock
from bed import cluster, control_plane, images, pods, running
from drill import discovery

from tidemark_operator import names
from tidemark_operator.monitoring import site
from tidemark_runtime.contract import http

NAME = "drill"
MODEL = "smollm2-135m"
RELEASE = "tidemark"
TARGETS = "targets.json"
START_SECONDS = 400.0
"""The kernels are compiled in the pod; the machine may be busy with other things."""
IMAGES = ("localhost/tidemark/operator:0.1.0", "localhost/tidemark/engine:0.1.0")
"""As `images.registry=localhost` makes the chart name them."""
SOFT_LIMIT = 12
LEAST_SCRAPE_INTERVAL = "2s"

PAGES = 85
"""Of KV memory, about, which a few clients fill."""
LEAST_PAGES, MOST_PAGES = 62, 110
"""The first load, which stops at the queue line, crosses it; the second is made for the pages there are."""


def service(memory_utilization: float) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NAME},
        "spec": {
            "model": {"source": {"package": {"name": MODEL}}, "maxContextTokens": 2048},
            "hardware": {"resourceName": "cpu", "count": 1, "memory": "2Gi"},
            "kvCache": {"memoryUtilization": memory_utilization},
            "scheduler": {"maxNumSeqs": SOFT_LIMIT, "maxNumBatchedTokens": 256},
            "watermarks": {"response": "tighten"},
            "rollout": {"drainSeconds": 0},
            "podTemplate": {"resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "2"}}},
        },
    }


@dataclass(frozen=True)
class Site:
    bed: running.Bed
    system: str
    """Namespace of the operator."""
    user: str
    """... and of the service."""
    clock: float
    files: rendered.Files
    mail: inbox.Inbox
    prometheus: programs.Prometheus
    alertmanager: programs.Alertmanager
    engine_url: str
    num_pages: int

    def service(self) -> dict[str, Any]:
        found = self.bed.get("tide", NAME, self.user)
        assert found is not None
        return found

    def events(self) -> list[dict[str, Any]]:
        """Of the service itself."""
        every = self.bed.objects("events.events.k8s.io", self.user)
        return [event for event in every if event["regarding"].get("kind") == names.KIND]


@contextlib.contextmanager
def prepared(bed: running.Bed, folder: Path, clock: float) -> Iterator[Site]:
    """With the service Ready and every target up."""
    for image in IMAGES:
        bed.load(images.host_python(image, ["tidemark"]))
    with bed.namespace("system") as system, bed.namespace("user") as user, _installed(bed, system):
        base = f"{pods.reachable_url(bed, RELEASE, system)}/runbooks"
        files = rendered.write(folder / "rendered", base)
        engine_url, num_pages = _engine(bed, user)
        bed.eventually("pods of earlier tests are gone", lambda: _others(bed, system, user) == [])
        discovery.write(folder / TARGETS, _every_pod(bed))
        with _watched(files, folder, clock) as watched:
            made = Site(bed, system, user, clock, files, *watched, engine_url, num_pages)
            programs.until("both targets are up", lambda: _are_up(made), cluster.PATIENCE_SECONDS)
            yield made


@contextlib.contextmanager
def _installed(bed: running.Bed, namespace: str) -> Iterator[None]:
    helm, where = control_plane.program("helm"), ("-n", namespace)
    options = ("--take-ownership", "--set=images.registry=localhost", "--set=images.pullPolicy=Never")
    wait = ("--wait", "--timeout=240s")
    bed.run([helm, "install", RELEASE, str(chart.CHART), *where, *options, *wait], seconds=300)
    try:
        yield
    finally:
        bed.run([helm, "uninstall", RELEASE, *where, "--ignore-not-found"], check=False)


def _engine(bed: running.Bed, namespace: str) -> tuple[str, int]:
    """URL of the engine, and its pages: about `PAGES`. What is left for them depends on what the libraries take, which
    differs by hundreds of MiB between machines: the first engine says how much."""
    bed.apply(service(0.9), namespace=namespace)
    ratio = _ratio(_memory(_ready(bed, namespace)))
    bed.kubectl("delete", "tide", NAME, "-n", namespace)
    bed.eventually("the first engine is gone", lambda: not bed.objects("pods", namespace))
    bed.apply(service(ratio), namespace=namespace)
    url = _ready(bed, namespace)
    memory = _memory(url)
    assert LEAST_PAGES <= memory["pagesTotal"] <= MOST_PAGES, memory
    return url, int(memory["pagesTotal"])


def _memory(url: str) -> dict[str, Any]:
    answer = httpx.get(f"{url}{http.STATUS_PATH}", timeout=30, trust_env=False, verify=False)
    answer.raise_for_status()
    return dict(answer.json()["memory"])


def _ratio(memory: dict[str, Any]) -> float:
    """Of all memory, for `PAGES` and what is beside them."""
    measured, planned = memory["partsBytes"], memory["plannedBytes"]
    others = measured["weights"] + measured["overhead"] + planned["activations"] + planned["workspace"]
    return round(float((others + PAGES * memory["pageBytes"]) / memory["limitBytes"]), 4)


def _ready(bed: running.Bed, namespace: str) -> str:
    """URL of the engine, once the service is Ready."""
    wanted = (f"{names.PLURAL}.{names.GROUP}/{NAME}", "-n", namespace)
    wait = ("--for=condition=Ready", f"--timeout={START_SECONDS:.0f}s")
    done = bed.run([bed.kubectl_program, "wait", *wanted, *wait], seconds=START_SECONDS + 20, check=False)
    assert done.returncode == 0, bed.kubectl("get", "tide,pods", "-n", namespace, "-o", "yaml")
    return pods.reachable_url(bed, NAME, namespace)


@contextlib.contextmanager
def _watched(
    files: rendered.Files, folder: Path, clock: float
) -> Iterator[tuple[inbox.Inbox, programs.Prometheus, programs.Alertmanager]]:
    rules = rule_clock.document(files.rules, clock)
    (folder / site.RULES).write_text(yaml.safe_dump(rules, allow_unicode=True), encoding="utf-8")
    config = rule_clock.document(files.document(site.PROMETHEUS_ON_KUBERNETES), clock)
    config["global"]["scrape_interval"] = scrape_interval(config["global"]["scrape_interval"])
    config = discovery.configured(config, folder / TARGETS)
    with (
        inbox.listening() as mail,
        programs.alertmanager(folder, rendered.alertmanager(files, clock, mail.url)) as alertmanager,
        programs.prometheus(folder, rendered.with_alertmanager(config, alertmanager.url)) as prometheus,
    ):
        yield mail, prometheus, alertmanager


def scrape_interval(scaled: str) -> str:
    """Two seconds at least: a scrape that fails ends all series, and an engine under load may take half a second, or
    more where the machine has other work. Four scrapes are in the shortest window, 40 times faster."""
    return max(scaled, LEAST_SCRAPE_INTERVAL, key=rule_clock.seconds)


def _every_pod(bed: running.Bed) -> list[cluster.Object]:
    """Of all namespaces, as a Prometheus sees them that looks after the whole cluster."""
    return list(json.loads(bed.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"])


def _others(bed: running.Bed, *namespaces: str) -> list[str]:
    """Pods of ours in other namespaces, which end without anybody waiting for them."""
    found = [pod["metadata"] for pod in _every_pod(bed)]
    return [metadata["name"] for metadata in found if metadata["namespace"] not in namespaces]


def _are_up(made: Site) -> bool:
    targets = made.prometheus.targets()
    jobs = {target["labels"]["job"] for target in targets if target["health"] == "up"}
    return jobs >= {site.ENGINE_JOB, site.OPERATOR_JOB}
