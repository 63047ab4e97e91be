"""`tidemark serve` on machines without a C compiler, and with one that miscompiles: what a person sees."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import httpx
import live
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NO_COMPILER = "no C compiler found (looked for cc, gcc, clang); install gcc"

MISCOMPILER = """#!{python}
# A compiler that loses the last of several rows of one kernel. It does not optimize: that takes most of its time.
import pathlib, subprocess, sys, tempfile

with tempfile.TemporaryDirectory() as room:
    arguments = sys.argv[1:]
    for place, argument in enumerate(arguments):
        if argument.endswith("elementwise.c"):
            source = pathlib.Path(argument)
            text = source.read_text()
            before, mark, after = text.partition("void tm_silu_mul")
            wrong = pathlib.Path(room) / source.name
            wrong.write_text(before + mark + after.replace("row < rows;", "row < rows - (rows > 2);"))
            arguments[place:place + 1] = [str(wrong), "-I", str(source.parent)]
            break
    sys.exit(subprocess.run(["{compiler}", *arguments, "-O0"]).returncode)
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """A machine on which nothing was compiled yet, and that has no compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return {"PATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def ended(tmp_path: Path, environment: dict[str, str], *arguments: str) -> str:
    """The log of a server that must end by itself, with 1."""
    server = live.start(tmp_path, *arguments, environment=environment)
    try:
        assert server.process.wait(2 * live.START_SECONDS) == 1
    finally:
        if server.process.poll() is None:
            server.process.kill()
    return server.log


def test_strict_kernels_refuse_to_start_without_a_compiler(
    smollm2_path: Path, tmp_path: Path, bare: dict[str, str]
) -> None:
    log = ended(tmp_path, bare, str(smollm2_path), "--strict-kernels", "true")
    assert "tidemark serve: KernelPath: hardware.strictKernels is true." in log
    assert f"silu_mul: planned on cpu-c, but torch would run them: {NO_COMPILER}" in log
    assert "paged_attention, " in log
    assert "ready:" not in log


def test_without_strict_kernels_it_serves_and_says_that_it_is_slow(
    smollm2_path: Path, tmp_path: Path, bare: dict[str, str]
) -> None:
    flags = ("--threads", "1", "--quantization", "none")  # four bits take torch many seconds a prompt
    with live.serving(tmp_path, str(smollm2_path), *flags, environment=bare) as server:
        seen = server.status()
        metrics = httpx.get(f"{server.url}/metrics", timeout=30, verify=live.CERTIFICATES).text
        body = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=300, verify=live.CERTIFICATES).json()
    assert (seen["state"], seen["reason"]) == ("ready", "KernelPath")
    assert "paged_attention" in str(seen["message"])
    assert NO_COMPILER in str(seen["message"])
    assert 'tidemark_kernel_path_info{dtype="float32",op="paged_attention",path="torch"} 1.0' in metrics
    assert "tidemark_kernel_paths_unplanned 0.0" not in metrics
    assert answer["choices"][0]["text"] == " Paris."


def test_a_compiler_that_miscompiles_is_found_before_anything_is_served(
    smollm2_path: Path, tmp_path: Path, bare: dict[str, str]
) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None, "this test needs a C compiler to make one that is wrong"
    wrong = Path(bare["PATH"]) / "cc"
    wrong.write_text(MISCOMPILER.format(python=sys.executable, compiler=compiler))
    wrong.chmod(0o755)
    environment = {**bare, "PATH": f"{bare['PATH']}:/usr/bin:/bin"}
    log = ended(tmp_path, environment, str(smollm2_path), "--threads", "1")
    assert "tidemark serve: KernelSelfTestFailed: kernels give wrong numbers on this machine" in log
    assert "silu_mul in float32 has an error of " in log
    assert "rms_norm in" not in log
    assert f"Delete {bare['XDG_CACHE_HOME']}" in log
    assert "ready:" not in log
