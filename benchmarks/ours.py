"""Our engine on the same file: the real worker, scheduler and pages, without the HTTP server."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import workload

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.worker import torch_worker


def main(gguf: str, check_ids: list[list[int]], threads: int, quantization: str, dtype: str) -> None:
    settings = config_parsing.parse(
        {
            "model": {"source": gguf, "quantization": quantization, "dtype": dtype, "maxContextTokens": 2048},
            "hardware": {"threads": threads},
            "scheduler": {"maxNumSeqs": 32, "maxNumBatchedTokens": 512},
            "kvCache": {"numPages": 32 * 128},
        }
    )
    source = sources.resolve(gguf, Path())
    worker = worker_thread.WorkerThread(lambda: torch_worker.create(settings, source, lambda phase, fraction: None))
    engine = core_engine.CoreEngine(settings.scheduler, worker, max_context_tokens=2048)

    def generate(prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        parameters = sampling.SamplingParams(max_tokens=max_tokens, temperature=0.0)
        engine.submit([messages.EngineRequest(str(index), ids, parameters) for index, ids in enumerate(prompts)])
        outputs: list[list[int]] = [[] for _ in prompts]
        while engine.has_work:
            for output in engine.step():
                outputs[int(output.id)].extend(output.token_ids)
        return outputs

    rates = workload.measure(generate)
    forms = ", ".join(each.path for each in worker.facts.kernel_paths if each.op == "linear")
    notes = f"{worker.facts.dtype}; {forms}"
    name = "tidemark" + (f" {quantization}" if quantization != "auto" else "")
    workload.report(
        name, metadata.version("tidemark-inference"), rates, generate(check_ids, workload.CHECK_TOKENS), notes
    )


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(
        arguments["gguf"],
        arguments["check_ids"],
        arguments["threads"],
        arguments["quantization"],
        arguments["dtype"],
    )
