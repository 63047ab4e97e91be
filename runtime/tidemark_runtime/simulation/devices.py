"""Devices by their published figures. A roofline needs no more; what it leaves out is in the efficiencies.

The comment at each device names the vendor's document. The documents themselves were not at hand: "compared" says with
what copy of it. A profile file of your own replaces any figure (`profiles`).

Sources of the efficiencies, the same for all devices because nobody publishes them for each:

- `memory_efficiency` 0.895: decode attention of FlashAttention 3 in vLLM on H100, Llama-3.1-8B, 3.00 of 3.35 TB/s
  (vLLM blog, 2026-04-22).
- `overhead_seconds` 0.0011: the same post measures 6.44 ms a step at batch 1; 16.06 GB of weights at 89.5 % of 3.35
  TB/s are 5.36 ms of it.
- `link_efficiency` 0.78: 50 GB/s one way on H100's PCIe 5.0 x16, 64 GB/s (vLLM blog on KV offloading, 2026-01-08).
- `compute_efficiency` 0.6: an assumption. Large 16-bit matrix products reach 0.6 to 0.8 of the dense peak.
- `reserved_bytes`: an assumption. Driver context, libraries and graphs of a serving process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime.simulation import fields

GB = 1e9
GIB = 1 << 30
TERA = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device. Bytes, bytes/s, FLOP/s and seconds."""

    name: str
    memory_bytes: int
    bandwidth: float
    """Of its memory, peak."""
    flops: float
    """Dense, 16-bit operands with float32 sums, peak."""
    link_bandwidth: float
    """To the host, one way, peak."""
    memory_efficiency: float = 0.895
    compute_efficiency: float = 0.6
    link_efficiency: float = 0.78
    overhead_seconds: float = 0.0011
    """What a step takes beside reading and computing: launches, sampling, norms."""
    reserved_bytes: int = GIB
    overlaps_copies: bool = True
    """Pages are copied beside the computation."""


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        device.name: device
        for device in (
            # NVIDIA Ada GPU architecture whitepaper (2022), table of GeForce RTX 4090: 24 GB GDDR6X, 1,008 GB/s, 165.2
            # TFLOPS FP16 tensor with FP32 accumulate (dense), PCIe 4.0 x16. Compared with a database of hardware
            # (waredb.com: 1,008 GB/s, 165.15 TFLOPS). nvidia-smi shows 24,564 MiB (from memory, not compared).
            Device(
                name="rtx4090",
                memory_bytes=24_564 << 20,
                bandwidth=1008 * GB,
                flops=165.2 * TERA,
                link_bandwidth=32 * GB,
            ),
            # NVIDIA L40S datasheet (2023): 48 GB GDDR6 with ECC, 864 GB/s, 362.05 TFLOPS BF16 tensor (dense), PCIe
            # Gen4 x16, 64 GB/s both ways together. Compared with resellers' copies of its table (mullet.se,
            # itcreations.com): the same. ECC leaves 46,068 MiB in nvidia-smi (from memory, not compared).
            Device(
                name="l40s",
                memory_bytes=46_068 << 20,
                bandwidth=864 * GB,
                flops=362.05 * TERA,
                link_bandwidth=32 * GB,
            ),
            # NVIDIA H200 datasheet (2024), SXM: 141 GB HBM3e, 4.8 TB/s, 1,979 TFLOPS BF16 with sparsity (half of it
            # dense), PCIe Gen5 128 GB/s both ways together. Compared with copies (aiwiki.ai, geektopia.es): the same.
            Device(
                name="h200",
                memory_bytes=int(141 * GB),
                bandwidth=4800 * GB,
                flops=989.5 * TERA,
                link_bandwidth=64 * GB,
            ),
            # Huawei publishes no datasheet of the processor alone, and what others state lies far apart, by model
            # (910B1 to 910B4, 32 or 64 GB) and by source: memory from 0.4 to 1.6 TB/s; FP16 256 TFLOPS, or 376 as half
            # of what is stated of a 910C. Taken: 64 GB; 313 TFLOPS, an eighth of the 2.5 PFLOPS of an Atlas 800T A2
            # server (vendor's product page, not verified); 1.6 TB/s, half of the 3.2 TB/s of an Ascend 910C, which has
            # two such dies ("Serving Large Language Models on Huawei CloudMatrix384", arXiv 2506.12708, 2025, not
            # verified), so the upper end. jishuzhan.net states 256 TFLOPS, 768 GB/s and PCIe 4.0 x16. Measure yours
            # (`bandwidthBytesPerSecond`).
            Device(
                name="ascend910b",
                memory_bytes=int(64 * GB),
                bandwidth=1600 * GB,
                flops=313 * TERA,
                link_bandwidth=32 * GB,
            ),
        )
    }
)


def parse(found: fields.Fields, base: Device | None) -> Device:
    """The keys of a profile's `device`; `base`: whose figures stand where the file says nothing."""
    defaults = base or Device(name="", memory_bytes=0, bandwidth=0.0, flops=0.0, link_bandwidth=0.0)

    def peak(name: str, value: float) -> float:
        return found.number(name, value if base else None, above=0.0)

    device = Device(
        name=found.text("name", base.name if base else None),
        memory_bytes=int(peak("memoryBytes", defaults.memory_bytes)),
        bandwidth=peak("bandwidthBytesPerSecond", defaults.bandwidth),
        flops=peak("flopsPerSecond", defaults.flops),
        link_bandwidth=peak("linkBytesPerSecond", defaults.link_bandwidth),
        memory_efficiency=found.number("memoryEfficiency", defaults.memory_efficiency, above=0.0, most=1.0),
        compute_efficiency=found.number("computeEfficiency", defaults.compute_efficiency, above=0.0, most=1.0),
        link_efficiency=found.number("linkEfficiency", defaults.link_efficiency, above=0.0, most=1.0),
        overhead_seconds=found.number("overheadSeconds", defaults.overhead_seconds),
        reserved_bytes=found.whole("reservedBytes", defaults.reserved_bytes),
        overlaps_copies=found.flag("overlapsCopies", defaults.overlaps_copies),
    )
    found.close()
    return device
