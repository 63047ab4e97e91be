"""Which path runs is decided once, told, and never changed in silence."""

from __future__ import annotations

import inspect
import logging
import pathlib
import subprocess
import sys
from concurrent import futures

import pytest
import torch

from tidemark_kernels import dispatch, grouped, ops, reference
from tidemark_kernels.cpu import build


def public_functions(module: object) -> set[str]:
    found = inspect.getmembers(module, inspect.isfunction)
    return {name for name, function in found if not name.startswith("_") and function.__module__ == module.__name__}  # type: ignore[attr-defined]


def test_every_op_has_a_reference_and_a_path() -> None:
    assert public_functions(ops) <= public_functions(reference)
    assert public_functions(ops) == set(dispatch.OPS)


def test_the_reason_names_the_library(native: dispatch.Choice) -> None:
    assert native.path == "cpu-c"
    assert ".so" in native.reason


def test_no_compiler_is_told(caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path) -> None:
    with caplog.at_level(logging.WARNING):
        chosen = dispatch.choose(find=lambda: None, folder=tmp_path)
    assert chosen.library is None
    assert chosen.path == "torch"
    assert chosen.reason == "no C compiler found (looked for cc, gcc, clang); install gcc"
    assert "slow torch path" in caplog.text


def test_a_failing_compiler_is_told(caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path) -> None:
    broken = empty_sources(tmp_path)
    (broken / "linear.c").write_text("this is not C\n")
    chosen = dispatch.choose(folder=tmp_path / "cache", source_folder=broken)
    assert chosen.library is None
    assert "failed with 1" in chosen.reason
    assert "linear.c:1" in chosen.reason
    assert chosen.reason in caplog.text
    assert not list((tmp_path / "cache").glob("*")), "a failed build leaves nothing behind"


def test_a_compiler_that_does_not_run_is_told(tmp_path: pathlib.Path) -> None:
    chosen = dispatch.choose(find=lambda: str(tmp_path / "missing"), folder=tmp_path)
    assert chosen.library is None
    assert "missing did not run" in chosen.reason


def test_a_cache_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    chosen = dispatch.choose(folder=tmp_path / "file" / "kernels")
    assert chosen.library is None
    assert "set XDG_CACHE_HOME to a writable folder" in chosen.reason


def test_a_library_that_is_damaged_is_told(tmp_path: pathlib.Path) -> None:
    path = fake_build(tmp_path)
    path.write_bytes(b"not a library")
    chosen = dispatch.choose(folder=tmp_path, source_folder=tmp_path / "source")
    assert chosen.library is None
    assert f"cannot load {path}" in chosen.reason


def test_two_builds_at_once_give_one_whole_file(tmp_path: pathlib.Path) -> None:
    with futures.ThreadPoolExecutor(2) as pool:
        paths = set(pool.map(lambda _: fake_build(tmp_path), range(2)))
    assert len(paths) == 1
    assert list(tmp_path.glob("*.so")) == list(paths)
    assert not list(tmp_path.glob("build-*"))
    before = paths.pop().stat().st_mtime_ns
    assert fake_build(tmp_path).stat().st_mtime_ns == before, "an earlier build is used again"


def empty_sources(folder: pathlib.Path) -> pathlib.Path:
    """They are compiled in no time."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for name in (*build.SOURCES, *build.HEADERS):
        (source / name).write_text("")
    return source


def fake_build(folder: pathlib.Path) -> pathlib.Path:
    return build.build(folder=folder, source_folder=empty_sources(folder))


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / "tidemark" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert build.cache_folder() == pathlib.Path.home() / ".cache" / "tidemark" / "kernels"


def test_one_openmp_runtime_in_the_process(native: dispatch.Choice) -> None:
    code = (
        "from tidemark_kernels import dispatch; assert dispatch.current().library, dispatch.current().reason\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'gomp' in line or 'iomp' in line})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    runtimes = done.stdout.split()
    assert len(runtimes) == 1
    assert str(pathlib.Path(torch.__file__).parent) in runtimes[0] or "torch" in runtimes[0]


def test_ops_on_the_torch_path(without_compiler: dispatch.Choice) -> None:
    quants = torch.randint(0, 16, (20, 64), dtype=torch.uint8)
    weight = grouped.GroupedWeight.pack(quants, torch.rand(20, 2), torch.rand(20, 2), 4, 32)
    x = torch.randn(3, 64)
    wanted = reference.grouped_linear(x, weight, torch.float64).float()
    torch.testing.assert_close(ops.grouped_linear(x, weight), wanted, rtol=1e-4, atol=1e-4)
    assert torch.equal(weight.rows(torch.tensor([3])), weight.dequantize()[3:4])
    with pytest.raises(ValueError, match="id 20 is out of range"):
        weight.rows(torch.tensor([20]))
    dense = grouped.PackedDense.pack(torch.randn(20, 64))
    torch.testing.assert_close(ops.dense_linear_f32(x, dense), x @ dense.dense().T)
    torch.testing.assert_close(ops.silu_mul(x), reference.silu_mul(x))
    torch.testing.assert_close(ops.rms_norm(x, torch.ones(64), 1e-5), reference.rms_norm(x, torch.ones(64), 1e-5))


def test_attention_on_the_torch_path(without_compiler: dispatch.Choice) -> None:
    slab = torch.zeros(2, 4 * 16 * 4 * 2, dtype=torch.uint8)
    layer = ops.LayerSegments.from_offsets([0], [4 * 16 * 4], torch.float32, torch.float32)
    token_page, token_row = torch.tensor([1, 1], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    qkv = torch.randn(2, 48)
    where = (slab, layer, token_page, token_row)
    q = ops.rope_and_write(qkv, torch.ones(2, 8), torch.zeros(2, 8), 1, 1, 16, 16, None, None, 1e-6, *where)
    table, starts, lengths = (torch.tensor(data, dtype=torch.int32) for data in ([[1]], [0, 2], [2]))
    result = ops.paged_attention(q, slab, layer, table, starts, lengths, 4, 0.25)
    torch.testing.assert_close(result[0], qkv[:1, 32:])
    with pytest.raises(ValueError, match="names page 1, expected 0 to 0"):
        ops.paged_attention(q, slab[:1], layer, table, starts, lengths, 4, 0.25)
    with pytest.raises(ValueError, match=r"token_page\[0\] is 1"):
        ops.rope_and_write(
            qkv, torch.ones(2, 8), torch.zeros(2, 8), 1, 1, 16, 16, None, None, 1e-6, slab[:1], *where[1:]
        )
