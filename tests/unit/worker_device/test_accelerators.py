"""Which device an engine takes, and what it says of one that is not there."""

from __future__ import annotations

import pytest
import torch

from tidemark_operator import effects
from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.planning import vendors
from tidemark_runtime.worker import accelerators


def seen(monkeypatch: pytest.MonkeyPatch, kind: str | None) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None if kind is None else torch.device(kind))


def test_every_device_of_the_settings_has_a_row() -> None:
    assert (config.AUTO, "cpu", *vendors.VENDORS) == config.DEVICES
    for vendor in vendors.VENDORS.values():
        assert vendor.makers
        assert vendor.resources


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        (None, "auto", "cpu"),
        (None, "cpu", "cpu"),
        ("cuda", "auto", "cuda"),
        ("cuda", "cpu", "cpu"),
        ("cuda", "cuda", "cuda"),
        ("xpu", "auto", "xpu"),
        ("mps", "auto", "cpu"),  # torch has it, we do not
    ],
)
def test_auto_takes_what_torch_sees(
    monkeypatch: pytest.MonkeyPatch, there: str | None, wanted: str, expected: str
) -> None:
    seen(monkeypatch, there)
    settings = config_parsing.parse({"model": {"source": "x"}, "hardware": {"device": wanted}})
    assert accelerators.resolved(settings).hardware.device == expected


@pytest.mark.parametrize(("there", "choices"), [(None, "auto or cpu"), ("cuda", "auto, cpu or cuda")])
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, there: str | None, choices: str
) -> None:
    seen(monkeypatch, there)
    with pytest.raises(errors.ConfigError) as raised:
        accelerators.resolve("npu")
    (problem,) = raised.value.problems
    assert (problem.key, problem.seen) == ("hardware.device", "npu")
    assert problem.expected.startswith(f"{choices}: torch")
    assert "Huawei Ascend" in problem.remedy
    assert "torch_npu" in problem.remedy
    assert "in a manifest hardware.resourceName: cpu" in problem.remedy


def test_the_operator_finds_a_row_by_the_beginning_of_a_resource() -> None:
    for kind, vendor in vendors.VENDORS.items():
        for start in vendor.resources:
            assert start.endswith("/")
            assert effects.device_of(f"{start}one") == kind
            assert vendors.of_resource(f"{start}one") == (kind, vendor)
    assert effects.device_of("example.com/npu") == "auto"
    assert vendors.of_resource("cpu") is None
    every = [start for vendor in vendors.VENDORS.values() for start in vendor.resources]
    assert len(every) == len(set(every))


def test_without_kernels_nothing_is_recorded() -> None:
    assert {kind for kind, vendor in vendors.VENDORS.items() if not vendor.has_kernels} == {"npu", "musa", "mlu"}
    assert {kind for kind, vendor in vendors.VENDORS.items() if vendor.has_graphs} == {"cuda"}
    plain = vendors.Vendor(makers="x", plugin="", collectives="x", resources=("x/",), kernels="none")
    assert not plain.has_graphs


def test_the_interpreter_is_no_choice_for_users() -> None:
    with pytest.raises(errors.ConfigError, match=r"hardware\.device"):
        config_parsing.parse({"model": {"source": "x"}, "hardware": {"device": accelerators.INTERPRETER}})
    assert accelerators.resolve(accelerators.INTERPRETER) == accelerators.INTERPRETER


def test_the_interpreter_does_everything_at_once() -> None:
    device = accelerators.find(accelerators.INTERPRETER)
    first, second = device.event(timed=True), device.event(timed=True)
    with device.stream() as stream:
        assert stream is None
        first.record()
        second.record()
        second.wait()
    second.synchronize()
    assert first.elapsed_time(second) >= 0
    assert device.pinned(5).shape == (5,)
    assert device.memory().free_bytes == device.memory().total_bytes > 0
    assert accelerators.capability(device) is None
    with pytest.raises(NotImplementedError, match="records nothing"):
        device.record(lambda: None)
