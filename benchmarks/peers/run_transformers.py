"""transformers on the same weights; in float32 it is also the yardstick of correctness."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers
import workload


def main(folder: str, check_ids: list[list[int]], dtype: str, threads: int) -> None:
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def generate(prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False
            )
        return [row[len(prompts[0]) :].tolist() for row in output]

    rates = workload.measure(generate, batches=(1, 16))
    check = [generate([ids], workload.CHECK_TOKENS)[0] for ids in check_ids]
    workload.report(f"transformers {dtype}", transformers.__version__, rates, check)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(arguments["folder"], arguments["check_ids"], arguments["dtype"], arguments["threads"])
