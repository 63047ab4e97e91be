"""The C kernels twice: as built for this machine, and as any x86-64 or ARM of the last decades would build them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import torch

from tidemark_kernels import dispatch


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def native() -> dispatch.Choice:
    """This machine's kernels; a run without a C compiler fails here and says why."""
    chosen = dispatch.current()
    assert chosen.library is not None, chosen.reason
    return chosen


@pytest.fixture(scope="session")
def portable(build_folder: pathlib.Path) -> dispatch.Choice:
    """The same sources without any instruction set beyond the architecture's first, and quickly compiled."""
    chosen = dispatch.choose(folder=build_folder, target_flags=["-O0"])
    assert chosen.library is not None, chosen.reason
    return chosen


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on many threads only wait for each other; tests of threads set their own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["native", "portable"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dispatch.Choice:
    """Makes one of the builds the one that ops run on."""
    chosen: dispatch.Choice = request.getfixturevalue(request.param)
    monkeypatch.setattr(dispatch, "current", lambda: chosen)
    torch.manual_seed(7)
    return chosen


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> dispatch.Choice:
    """Ops on the torch path, as on a machine without a compiler."""
    chosen = dispatch.choose(find=lambda: None)
    monkeypatch.setattr(dispatch, "current", lambda: chosen)
    torch.manual_seed(7)
    return chosen
