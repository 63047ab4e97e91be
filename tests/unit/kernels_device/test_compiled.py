"""Kernels are compiled for devices that are not here, and their code is read: toys; ours are in `test_kernel_code`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy_kernels

from tidemark_kernels.compiled import compiling, disassembly, discovery, readings, table

TOGETHER = """
import tempfile
import toy_kernels
from tidemark_kernels.compiled import compiling, disassembly, machine_code

for target in (80, 90):
    cubins = [compiling.compiled(one, target).cubin for one in toy_kernels.variants() if target in one.targets]
    for cubin, text in zip(cubins, disassembly.texts(cubins, target), strict=True):
        assert machine_code.read(disassembly.texts([cubin], target)[0]) == machine_code.read(text)
        with tempfile.NamedTemporaryFile() as file:
            file.write(cubin)
            file.flush()
            whole = compiling.tool("nvdisasm", "-c", file.name)
        names = [[name for _, name, _ in machine_code.INSTRUCTION.findall(one)] for one in (text, whole)]
        assert names[0] == names[1] != []
        print(len(cubins))
"""


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is read of the toy kernels, compiled in a process that finds them."""
    folder = tmp_path_factory.mktemp("toys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(toy_kernels.__file__).parent))
        versions, listing = readings.listing(folder, ["toy_kernels"])
        jobs = [(name, target) for name, form in listing.items() for target in form["targets"]]
        found = readings.of_jobs(folder, jobs, processes=1, modules=["toy_kernels"])
    assert sorted(versions) == ["ptxas", "triton"]
    assert len(list((folder / readings.CACHE).iterdir())) == len(jobs)
    return table.of(versions, listing, found)


def test_tensor_cores_wide_loads_and_registers_are_found(toys: dict[str, Any]) -> None:
    good = toys["kernels"]["product[64]"]["targets"]
    assert sorted(good) == ["sm_80", "sm_89", "sm_90"]
    for one in good.values():
        assert one["wide_percent"] == 100
        assert 32 <= one["registers"] <= 128
        assert one["programs"] >= 2
    assert good["sm_80"]["matrix"].startswith("HMMA")
    assert good["sm_90"]["matrix"].startswith("HGMMA")


def test_each_bad_toy_is_named_with_what_is_bad(toys: dict[str, Any]) -> None:
    problems = table.broken_rules(toys)
    assert [line.partition(" for ")[0] for line in problems] == [
        "product[128, two warps]",
        "twice[step 2]",
        "twice[step 2]",
    ]
    for line, words in zip(problems, ("spills", "in pieces of 16", "no matrix instruction"), strict=True):
        assert words in line


def test_a_kernel_that_does_not_compile_ends_the_reading_with_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(toy_kernels.__file__).read_text(encoding="utf-8").replace("tl.dot(left", "tl.does_not_exist(left")
    (tmp_path / "broken_toys.py").write_text(source, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="does_not_exist"):
        readings.of_jobs(tmp_path, [("product[64]", "sm_80")], modules=["broken_toys"])


def test_binaries_that_are_disassembled_together_say_what_they_say_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(toy_kernels.__file__).parent)
    command = [sys.executable, "-c", TOGETHER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["4", "4", "4", "4", "1"]


@pytest.mark.parametrize(
    ("cubin", "message"),
    [(b"PTX", "begins with b'PTX', expected b'.x7fELF"), (Path("/bin/sh").read_bytes(), "has code in")],
)
def test_what_is_no_binary_of_one_kernel_is_refused(cubin: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        disassembly.code(cubin)


def test_a_disassembly_without_some_instructions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "code", lambda cubin: cubin)
    monkeypatch.setattr(compiling, "tool", lambda *_: "        /*0000*/  NOP ;\n        /*0020*/  EXIT ;\n")
    with pytest.raises(ValueError, match="nvdisasm gave 1 instructions for 32 bytes of code at 0x0"):
        disassembly.texts([bytes(32), bytes(16)], 90)


def test_interpreted_kernels_are_not_compiled() -> None:
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET is set"):
        compiling.compiled(toy_kernels.variants()[0], 90)


def test_the_key_of_a_form_is_of_what_its_code_is_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(toy_kernels.__file__).read_text(encoding="utf-8")
    texts = {
        "same_toys": "# A comment.\n\n" + source.replace("out `[BLOCK, BLOCK]` = a", "The product of a"),
        "other_toys": source.replace("tl.zeros((BLOCK, BLOCK)", "tl.full((BLOCK, BLOCK), 1.0"),
    }
    for name, text in texts.items():
        assert text != source
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = [[discovery.key(one) for one in importlib.import_module(name).variants()] for name in texts]
    own = [discovery.key(one) for one in toy_kernels.variants()]
    assert keys[0] == own
    assert len({*own, *keys[1]}) == 2 * len(own)


def test_names_of_forms_are_unique() -> None:
    with pytest.raises(ValueError, match="two variants are named 'product"):
        discovery.variants(["toy_kernels", "toy_kernels"])
