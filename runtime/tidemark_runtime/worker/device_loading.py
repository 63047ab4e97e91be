"""From settings and a source to a model on a device, a slab of the right size there, and a worker that has run its
first steps."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import torch

from tidemark_kernels import device_dispatch
from tidemark_runtime import config, errors
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import device_linear, probes, sharded_checkpoint, sources
from tidemark_runtime.model import loading as model_loading
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.model.backends import device as device_backend
from tidemark_runtime.planning import capacity, page_layout
from tidemark_runtime.worker import (
    accelerators,
    cpu,
    device_draft_loading,
    device_selftest,
    device_worker,
    draft_loading,
    interface,
    loading,
    measuring,
    out_of_memory,
    planned,
    ranks,
    selftest,
)

_LOGGER = logging.getLogger(__name__)


def create(
    settings: config.EngineConfig, source: sources.ModelSource, progress: model_weights.Progress
) -> device_worker.DeviceWorker:
    """Load the model, size the slab, test the kernels, run and record first steps. `hardware.device` is resolved.

    Raises ModelError, CapacityError or ConfigError: whatever is wrong with model, memory or settings; KernelError where
    a kernel gives wrong numbers, or `hardware.strictKernels` forbids what would run; OutOfMemory where memory runs out.
    """
    accelerator = accelerators.find(settings.hardware.device)
    with out_of_memory.told("while the model was loaded"):
        loaded = load(settings, source, progress, accelerator)
        scheduler = settings.scheduler
        worker = device_worker.DeviceWorker(loaded, scheduler.max_num_seqs)
    progress("warming up", 1.0)
    worker.prepare(measuring.Step(scheduler.max_num_seqs, scheduler.max_num_batched_tokens))
    return worker


def load_rank(
    settings: config.EngineConfig, source: sources.ModelSource, progress: model_weights.Progress, place: ranks.Place
) -> device_worker.DeviceWorker:
    """One rank of several, on the device of its number, before its first step. `settings`: of one rank. Raises as
    `create`."""
    accelerator = accelerators.find(settings.hardware.device, place.shard.rank)
    with out_of_memory.told("while the model was loaded"):
        loaded = load(settings, source, progress, accelerator, place)
        return device_worker.DeviceWorker(loaded, settings.scheduler.max_num_seqs)


def load(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    progress: model_weights.Progress,
    accelerator: accelerators.Accelerator,
    place: ranks.Place = ranks.ALONE,
) -> device_worker.Loaded:
    """Everything before the first step. `place`: among the ranks that share the model. Raises as `create`."""
    torch.set_num_threads(settings.hardware.threads or cpu.usable_cores())
    checkpoint = checkpoints.open_checkpoint(source)
    spec, device, num_ranks = checkpoint.spec, accelerator.device, place.shard.size
    if num_ranks > 1:
        ranks.check_divides(loading.shape_of(spec, 0), num_ranks, settings.hardware.device)
        checkpoint = sharded_checkpoint.ShardedCheckpoint(checkpoint, place.shard)
    loading.check_packed(settings.model, checkpoint)
    _check_settings(settings)
    max_context_tokens = loading.max_context_of(settings.model, spec)
    dtype = activations_dtype(settings.model.dtype, spec.dtype)
    pages = loading.pages_of(settings.kv_cache, source, spec, dtype, place.shard)
    _check_kv(settings.kv_cache, pages.layout)
    choices = _choose(settings, accelerator, spec, pages.layout, dtype)
    backend = device_backend.Device(device, choices, max_context_tokens)
    policy = device_linear.policy(dtype, settings.model.quantization, has_kernels=not accelerator.kernels)
    factory, kept = device_linear.DeviceFactory(policy, device), probes.Probes()
    with torch.inference_mode():
        model = model_loading.load(checkpoint, factory, progress, kept, backend, place.group)
    wanted = draft_loading.Wanted(max_context_tokens, pages.layout.dtype, pages.layout.block_size, num_ranks)
    drafted = _load_draft(settings, accelerator, wanted, dtype, progress)
    speculation = device_draft_loading.speculation(settings.speculative, drafted, dtype)
    memory = _Memory.of(settings, accelerator, factory.num_bytes + speculation.draft_weights_bytes)
    decided = planned.Decided(
        loading.shape_of(spec, factory.num_bytes * num_ranks),
        pages.layout,
        memory.limit_bytes,
        max_context_tokens,
        loading.dtype_name(dtype),
        num_devices=num_ranks,
        on_device=planned.OnDevice(
            dtype.itemsize, not accelerator.no_graphs and num_ranks == 1, has_kernels=not accelerator.kernels
        ),
        speculation=speculation,
    )
    own_size = planned.pool_size_of(settings, decided, memory.overhead_bytes)
    agreed = place.agree(ranks.NumPages(own_size.num_pages, pages.num_host_pages))
    size = dataclasses.replace(own_size, num_pages=agreed.slab, kv_bytes=agreed.slab * pages.layout.page_bytes)
    plan = planned.of(settings, source, decided)
    host_page_bytes = pages.layout.page_bytes + speculation.draft_page_bytes
    slab = torch.zeros((size.num_pages, pages.layout.page_bytes), dtype=torch.uint8, device=device)
    kv_memory = batches.KVMemory.of(slab, pages.layout, pages.scales)
    facts = interface.WorkerFacts(
        kind="triton",
        device=settings.hardware.device,
        dtype=decided.dtype,
        layout=pages.layout,
        num_pages=size.num_pages,
        num_host_pages=agreed.host,
        max_context_tokens=max_context_tokens,
        memory_bytes={**planned.measured(size), "swap": agreed.host * host_page_bytes},
        planned_bytes=plan.parts_bytes,
        memory_limit_bytes=memory.limit_bytes,
        step_token_bytes=capacity.step_token_bytes(capacity.divided(decided.shape, num_ranks), dtype.itemsize),
        shape=decided.shape,
        notes={
            "deviceName": accelerator.name,
            "memoryLimit": f"{memory.limit_bytes} bytes, {memory.source}",
            "pagesDecidedBy": size.decided_by,
            **pages.notes,
            **plan.notes,
        },
    )
    progress("testing the kernels", 1.0)
    paths = device_selftest.run(
        device_selftest.Subject(
            model=model,
            memory=kv_memory,
            probes=kept.found,
            choices=choices,
            accelerator=accelerator,
            dtype=dtype,
            num_host_pages=agreed.host,
        )
    )
    return device_worker.Loaded(
        accelerator=accelerator,
        model=model,
        memory=kv_memory,
        facts=facts,
        choices=choices,
        paths=paths,
        num_guesses=speculation.num_guesses,
        draft=None if drafted is None else drafted.parts(size.num_pages, agreed.host, speculation.draft_token_bytes),
        group=place.group,
    )


def _load_draft(
    settings: config.EngineConfig,
    accelerator: accelerators.Accelerator,
    wanted: draft_loading.Wanted,
    dtype: torch.dtype,
    progress: model_weights.Progress,
) -> device_draft_loading.Drafted | None:
    draft = settings.speculative.draft_model
    if draft is None:
        return None

    def choose(spec: model_spec.ModelSpec, layout: page_layout.PageLayout) -> device_dispatch.Choices:
        return _choose(settings, accelerator, spec, layout, dtype)

    return device_draft_loading.load(draft, wanted, accelerator, dtype, choose, progress)


def activations_dtype(wanted: str, of_model: str) -> torch.dtype:
    """`auto`: float16 for a model of it, else bfloat16, which every device has that our kernels run on."""
    if wanted == config.AUTO:
        wanted = "float16" if of_model == "float16" else "bfloat16"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[wanted]


@dataclass(frozen=True, slots=True)
class _Memory:
    limit_bytes: int
    source: str
    overhead_bytes: int
    """Of the device, in use and not the weights: driver, libraries, tables of angles, other processes."""

    @classmethod
    def of(cls, settings: config.EngineConfig, accelerator: accelerators.Accelerator, weights_bytes: int) -> _Memory:
        """With the weights loaded, and nothing else. Raises ConfigError."""
        accelerator.give_back()
        found, wanted = accelerator.memory(), settings.hardware.memory
        overhead = max(0, found.total_bytes - found.free_bytes - weights_bytes)
        if wanted is None:
            return cls(found.total_bytes, "all of the device", overhead)
        if wanted > found.total_bytes:
            problem = errors.Problem(
                "hardware.memory",
                wanted,
                f"at most {found.total_bytes} bytes, all that {accelerator.name} has",
                "Lower it or leave it out",
            )
            raise errors.ConfigError([problem])
        return cls(wanted, "hardware.memory", overhead)


def _choose(
    settings: config.EngineConfig,
    accelerator: accelerators.Accelerator,
    spec: model_spec.ModelSpec,
    layout: page_layout.PageLayout,
    dtype: torch.dtype,
) -> device_dispatch.Choices:
    """Which path each op runs; what is not planned is logged, once. Raises KernelPathError where strict."""
    need = device_dispatch.Need(
        dtype=dtype,
        head_dim=spec.head_dim,
        block_size=layout.block_size,
        kv_dtypes=tuple(sorted(layout.page_bytes_by_dtype)),
        vocab_size=spec.vocab_size,
    )
    target = device_dispatch.Target(
        kind=settings.hardware.device, missing=accelerator.kernels, capability=accelerators.capability(accelerator)
    )
    choices = device_dispatch.choose(need, target)
    for each in choices.paths:
        level = logging.INFO if each.is_planned else logging.WARNING
        _LOGGER.log(
            level,
            "kernel op=%s dtype=%s planned=%s path=%s reason=%r",
            *(each.op, each.dtype, each.planned, each.path, each.reason),
        )
    if selftest.is_strict(settings.hardware):
        selftest.refuse(device_selftest.untested(choices))
    return choices


def _check_settings(settings: config.EngineConfig) -> None:
    """Raises ConfigError for what only a processor has, all at once."""
    problems = []
    if settings.model.quantization == "int8":
        problems.append(
            errors.Problem(
                "model.quantization",
                "int8",
                "auto, none, int8_weight_only, fp8_weight_only, awq or gptq on a device",
                "Only a processor rounds activations. Choose int8_weight_only, or hardware.device cpu",
            )
        )
    if problems:
        raise errors.ConfigError(problems)


def _check_kv(kv_cache: config.KVCacheConfig, layout: page_layout.PageLayout) -> None:
    """Raises ConfigError for KV memory of 4 bits, whichever setting asks for it."""
    if "int4" not in layout.page_bytes_by_dtype:
        return
    key = "kvCache.dtype"
    if kv_cache.dtype != "int4":
        first = next(segment for segment in layout.segments if segment.dtype.name == "int4")
        named_by = kv_cache.precision_file or "kvCache.precision"
        key = f"{named_by}: layer {first.layer}, head {first.head}, {first.kind}"
    problem = errors.Problem(
        key,
        "int4",
        "auto, 16 bits, int8, fp8_e4m3 or fp8_e5m2 on a device",
        "No kernel of a device reads 4 bits. Choose int8, or hardware.device cpu",
    )
    raise errors.ConfigError([problem])
