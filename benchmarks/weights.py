"""Quantized weights, shown: accuracy, memory and speed of every format beside the 16-bit model, on one page.

    python benchmarks/weights.py --folder FOLDER

SmolLM2-135M on the processor. Its 16-bit weights are those that its GGUF stands for; AWQ and GPTQ checkpoints are made
of them by rounding to nearest (`tests/support/packed_checkpoints.py`), where real tools search for better codes. FOLDER
keeps checkpoints and measurements: a run that was stopped goes on. Writes benchmarks/results/weights.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import machine
import torch

from tidemark_runtime import model_store
from tidemark_runtime.evaluation import configurations, figures, items, reader, regression, subject, weight_subjects
from tidemark_runtime.model import sources
from tidemark_runtime.planning import page_layout

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))
import gguf_to_folder  # noqa: E402
import packed_checkpoints  # noqa: E402

RESULTS = HERE / "results" / "weights.md"
BASE = "smol16"
PLAN = items.Plan(
    parts=(items.TEXT, items.GREEDY), text_tokens=1024, window_tokens=512, prompts=4, continuation_tokens=24
)
MADE = {
    "auto": "16 bits as the file has them (`auto`)",
    "int8_weight_only": "`int8_weight_only`",
    "fp8_weight_only": "`fp8_weight_only`",
    "int8": "`int8`: activations in 8 bits, too",
}
"""`model.quantization`, of the 16-bit checkpoint."""
PACKED: Mapping[str, tuple[str, packed_checkpoints.Format]] = {
    "gptq8": ("GPTQ, 8 bits, groups of 64", packed_checkpoints.Format(method="gptq", bits=8, group_size=64)),
    "awq32": ("AWQ, 4 bits, groups of 32", packed_checkpoints.Format(method="awq", group_size=32)),
    "awq64": ("AWQ, 4 bits, groups of 64", packed_checkpoints.Format(method="awq", group_size=64)),
    "gptq64o": (
        "GPTQ, 4 bits, groups of 64, act-order",
        packed_checkpoints.Format(method="gptq", group_size=64, act_order=True),
    ),
    "gptq64s": (
        "GPTQ, 4 bits, groups of 64, symmetric",
        packed_checkpoints.Format(method="gptq", group_size=64, sym=True),
    ),
    "gptqrow": ("GPTQ, 4 bits, one group a row", packed_checkpoints.Format(method="gptq", group_size=-1)),
}
_PROMPT_TOKENS, _DECODE_STEPS, _ROUNDS = 256, 16, 5


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of processor time a token, on one thread."""

    prompt: float
    decode: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoints and measurements are kept")
    folder = parser.parse_args().folder
    base = folder / BASE
    if not base.exists():
        gguf_to_folder.convert(model_store.fetch("smollm2-135m"), base)
    for name, (_, how) in PACKED.items():
        if not (folder / name).exists():
            packed_checkpoints.convert(base, folder / name, how)
    rows = _measured(folder)
    text = "\n".join([_HEAD, *rows, "", f"Machine: {machine.describe()}.", ""])
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


_HEAD = """# Quantized weights, measured

Command: `python benchmarks/weights.py --folder FOLDER`. SmolLM2-135M against its weights in float32; made text, half
English and half Chinese, 1,024 tokens in pieces of 512; K and V in float32; 4 greedy continuations of 24 tokens. Speeds
are of processor time on one thread, the fastest of 5 turns: a step of one token, and 256 tokens at once. AWQ and
GPTQ checkpoints were made by rounding to nearest, without the search that makes those methods good.

| weights | MB | mean KL, nats | perplexity | same next | same continuation | decode, tokens/s | prompt, tokens/s |
|---|---|---|---|---|---|---|---|"""


def _measured(folder: Path) -> list[str]:
    """Rows of the table: the unquantized model first."""
    original = sources.resolve(str(folder / BASE), folder)
    subjects = weight_subjects.load(
        weight_subjects.Wanted(source=original, quantizations=tuple(MADE)), 1, lambda *_: None
    )
    others = {MADE[str(one.quantization)]: one for one in subjects.others.values()}
    for name, (title, _) in PACKED.items():
        others[title] = subject.load(sources.resolve(str(folder / name), folder), 1, lambda *_: None)
    base = subjects.base
    run = regression.Run(
        subject=base,
        text=items.made_text(base.encoder, PLAN),
        plan=PLAN,
        base_dtype=base.dtype,
        others=tuple(
            configurations.Configuration(title, base.dtype, weights=one.quantization) for title, one in others.items()
        ),
        weights=others,
    )
    found = regression.measure(run, folder / "eval-results", resume=True, progress=_say)
    speeds = _speeds({"": base, **others})
    rows = [f"| float32 (`none`) | {found.base_weights_bytes / 1e6:.1f} | | | | | {_shown(speeds[''])} |"]
    return rows + [_row(entry, speeds[entry.name]) for entry in found.configurations]


def _say(what: str, done: int, total: int) -> None:
    print(f"{what}: {done} of {total} tokens", file=sys.stderr, flush=True)


def _row(entry: figures.Figures, speed: Speed) -> str:
    if entry.text is None or entry.greedy is None:
        raise ValueError(f"{entry.name}: text and greedy were not measured")
    cells = (
        entry.name,
        f"{entry.weights_bytes / 1e6:.1f}",
        f"{entry.text.mean_kl:.5f}",
        f"{entry.text.perplexity_rise:+.2%}",
        f"{entry.text.argmax_agreement:.1%}",
        f"{entry.greedy.same_tokens:.0%}",
        _shown(speed),
    )
    return f"| {' | '.join(cells)} |"


def _shown(speed: Speed) -> str:
    return f"{1 / speed.decode:.0f} | {1 / speed.prompt:.0f}"


def _speeds(subjects: Mapping[str, subject.Subject]) -> dict[str, Speed]:
    """In turns, so that a disturbance meets all alike."""
    best = {name: Speed(float("inf"), float("inf")) for name in subjects}
    for _ in range(_ROUNDS):
        for name, one in subjects.items():
            speed = _speed(one)
            best[name] = Speed(min(best[name].prompt, speed.prompt), min(best[name].decode, speed.decode))
    return best


def _speed(one: subject.Subject) -> Speed:
    torch.set_num_threads(1)
    layout = page_layout.PageLayout(one.model.spec.kv_shape, 16, one.dtype)
    reading = reader.Reader(one.model, layout, _PROMPT_TOKENS + _DECODE_STEPS)
    tokens = [100 + place % 1000 for place in range(_PROMPT_TOKENS)]
    started = time.process_time()
    reading.forward([reader.Chunk(0, 0, tokens)], [_PROMPT_TOKENS - 1])
    prompt = (time.process_time() - started) / _PROMPT_TOKENS
    started = time.process_time()
    for step in range(_DECODE_STEPS):
        reading.forward([reader.Chunk(0, _PROMPT_TOKENS + step, [100])], [0])
    return Speed(prompt, (time.process_time() - started) / _DECODE_STEPS)


if __name__ == "__main__":
    main()
