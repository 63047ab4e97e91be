"""B051's neighbour: what runs on another path than planned is said for as long as it does, not once in a log."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import parser

from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import status
from tidemark_runtime.engine import messages
from tidemark_runtime.server import kernels

REASON = "no C compiler found (looked for cc, gcc, clang); install gcc"
SLOW = [
    status.KernelPath("paged_attention", "cpu-c", "torch", "int8", status.SelfTest.OK, 1e-6, 1e-4, REASON),
    status.KernelPath("paged_attention", "cpu-c", "torch", "bfloat16", status.SelfTest.OK, 1e-6, 1e-4, REASON),
    status.KernelPath("rms_norm", "cpu-c", "torch", "float32", status.SelfTest.OK, 1e-6, 1e-4, REASON),
    status.KernelPath("sampler", "numpy", "numpy", "float32", status.SelfTest.OK),
]


@pytest.fixture
def slow_engine(engine):
    engine.ready = msgspec.structs.replace(engine.ready, kernel_paths=SLOW)
    return engine


async def test_a_slow_path_is_a_standing_warning(http, slow_engine):
    seen = (await http.get(paths.STATUS_PATH)).json()
    assert (seen["state"], seen["reason"]) == ("ready", "KernelPath")
    assert seen["message"] == (
        f"Serving, slowly: paged_attention, rms_norm run on torch instead of cpu-c: {REASON}. Then restart this engine."
    )
    assert (await http.get(paths.READY_PATH)).status_code == 200


async def test_status_has_every_path(http, slow_engine):
    seen = (await http.get(paths.STATUS_PATH)).json()["kernelPaths"]
    assert seen[0] == {
        "op": "paged_attention",
        "planned": "cpu-c",
        "path": "torch",
        "dtype": "int8",
        "selfTest": "ok",
        "largestError": 1e-6,
        "tolerance": 1e-4,
        "reason": REASON,
    }
    assert [(each["op"], each["dtype"]) for each in seen] == [(each.op, each.dtype) for each in SLOW]


async def test_a_series_for_each_op_path_and_dtype(http, slow_engine):
    text = (await http.get(paths.METRICS_PATH)).text
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    found = {
        (each.labels["op"], each.labels["path"], each.labels["dtype"])
        for each in samples
        if each.name == "tidemark_kernel_path_info"
    }
    assert found == {(each.op, each.path, each.dtype) for each in SLOW}
    assert [each.value for each in samples if each.name == "tidemark_kernel_paths_unplanned"] == [3]


async def test_as_planned_nothing_is_said(http):
    seen = (await http.get(paths.STATUS_PATH)).json()
    assert (seen["state"], seen["reason"], seen["message"]) == ("ready", "", "Serving.")


async def test_while_loading_no_path_is_told(http, engine):
    engine.ready, engine.progress = None, messages.LoadProgress("testing the kernels", 1.0)
    assert (await http.get(paths.STATUS_PATH)).json()["kernelPaths"] == []
    lines = (await http.get(paths.METRICS_PATH)).text.splitlines()
    assert not [line for line in lines if line.startswith("tidemark_kernel_path")]


@pytest.mark.parametrize("kind", ["KernelPathError", "SelfTestFailed"])
async def test_an_engine_that_refused_is_not_ready_and_says_why(http, shared, engine, kind):
    engine.ready = None
    engine.failure, engine.failure_kind = "hardware.strictKernels is true. rms_norm: planned on cpu-c ...", kind
    response = await http.get(paths.READY_PATH)
    assert response.status_code == 503
    assert "hardware.strictKernels is true" in response.json()["reason"]
    reason = (await http.get(paths.STATUS_PATH)).json()["reason"]
    assert reason == {"KernelPathError": "KernelPath", "SelfTestFailed": "KernelSelfTestFailed"}[kind]


def test_reasons_are_named_once():
    two = [*SLOW, status.KernelPath("grouped_linear", "cpu-c", "torch", "float32", reason="its weights are elsewhere")]
    assert kernels.warning(two).count(REASON) == 1
    assert kernels.warning(two).count("its weights are elsewhere") == 1
