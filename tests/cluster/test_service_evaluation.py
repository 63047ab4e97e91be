"""An evaluation as a Job of the cluster: the real model and comparison, and what the operator makes of its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import operator_runner
import pytest
from bed import images

from tidemark_operator import names

if TYPE_CHECKING:
    from bed.running import Bed

NAME = "smollm2"
IMAGE = "localhost/tidemark-bed/engine:1"
JOB_SECONDS = 400.0
"""The kernels are compiled in the pod; the machine may be busy with other things."""

pytestmark = pytest.mark.timeout(900)


def service(**evaluation: Any) -> dict[str, Any]:
    """No engine runs: an evaluation needs none."""
    return operator_runner.small(
        NAME,
        replicas=0,
        kvCache={"dtype": "int8"},
        hardware={"memory": "2Gi"},
        podTemplate={"resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "2"}}},
        evaluation={"schedule": "0 3 * * 0", **evaluation},
    )


@pytest.fixture
def bench(
    smollm2_path: Path, node_bed: Bed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[operator_runner.Bench]:
    image = node_bed.load(images.host_python(IMAGE, ["tidemark"]))
    with operator_runner.bench(node_bed, tmp_path_factory.mktemp("operator"), image) as made:
        made.start()
        yield made


def test_a_run_by_hand_reaches_the_status(bench: operator_runner.Bench) -> None:
    bench.apply(service())
    cron = names.evaluation(NAME)
    bench.until("the CronJob", lambda: bench.get("cronjob", cron))
    bench.bed.kubectl("create", "job", "by-hand", f"--from=cronjob/{cron}", "-n", bench.namespace)
    bench.until(
        "an evaluation",
        lambda: (bench.found("tide", NAME).get("status") or {}).get("evaluation", {}).get("job") == "by-hand",
        JOB_SECONDS,
    )
    told = bench.found("tide", NAME)["status"]["evaluation"]
    assert told["passed"], told
    assert 0 < told["meanKl"] < 0.005
    assert told["configuration"] == "int8"
    assert told["intervalSeconds"] == 7 * 86_400
    said = bench.until_condition(NAME, "EvaluationPassed", "True")["message"]
    assert said.startswith("int8: mean KL ")
    assert bench.pods(NAME) == {}  # none of it counts as an engine
