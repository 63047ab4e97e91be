"""llama-cpp-python on the same GGUF file. One sequence at a time: its Python interface has no batched generation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import workload
from llama_cpp import Llama


def main(gguf: str, check_ids: list[list[int]], threads: int) -> None:
    model = Llama(gguf, n_ctx=2048, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def generate(prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        outputs = []
        for prompt in prompts:
            model.reset()
            tokens = []
            for token in model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
                tokens.append(int(token))
                if len(tokens) == max_tokens:
                    break
            outputs.append(tokens)
        return outputs

    rates = workload.measure(generate, batches=(1,))
    workload.report(
        "llama.cpp (llama-cpp-python)", version("llama-cpp-python"), rates, generate(check_ids, workload.CHECK_TOKENS)
    )


if __name__ == "__main__":
    import json

    arguments = json.loads(sys.argv[1])
    main(arguments["gguf"], arguments["check_ids"], arguments["threads"])
