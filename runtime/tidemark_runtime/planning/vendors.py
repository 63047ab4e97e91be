"""What is particular to the devices of a vendor, as data: for the worker, for plans, and for the operator.

docs/operations/accelerators.md says what a row must hold, and which of them have been run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """What `torch.accelerator` does not say of a device's type."""

    makers: str
    """Whose devices, for people."""
    plugin: str
    """Python package that makes torch know the type; empty: torch itself."""
    collectives: str
    """Backend of torch.distributed by which several of them share a model (`worker.process_group`)."""
    resources: tuple[str, ...]
    """How the resources of its device plugins on Kubernetes begin."""
    kernels: str = ""
    """Empty: Triton compiles for it. Else why our kernels do not run there."""
    no_graphs: str = ""
    """Empty: steps can be recorded."""

    @property
    def has_kernels(self) -> bool:
        """Else groups of weights are expanded: only our kernels read them."""
        return not self.kernels

    @property
    def has_graphs(self) -> bool:
        """Plain torch waits for the host in the middle of a step, which then cannot be recorded either."""
        return not self.no_graphs and self.has_kernels


_NO_TRITON = "no Triton for this device is known to compile our kernels; each op runs as plain torch, many times slower"
_NO_GRAPHS = "its plugin offers no recording through torch.accelerator.Graph that we know of; every step is launched"

VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        # torch spells AMD's devices cuda, too, where it is built for ROCm.
        "cuda": Vendor(makers="NVIDIA or AMD", plugin="", collectives="nccl", resources=("nvidia.com/", "amd.com/")),
        "xpu": Vendor(
            makers="Intel", plugin="", collectives="xccl", resources=("gpu.intel.com/",), no_graphs=_NO_GRAPHS
        ),
        "npu": Vendor(
            makers="Huawei Ascend",
            plugin="torch_npu",
            collectives="hccl",
            resources=("huawei.com/",),
            kernels=_NO_TRITON,
            no_graphs=_NO_GRAPHS,
        ),
        "musa": Vendor(
            makers="Moore Threads",
            plugin="torch_musa",
            collectives="mccl",
            resources=("mthreads.com/",),
            kernels=_NO_TRITON,
            no_graphs=_NO_GRAPHS,
        ),
        "mlu": Vendor(
            makers="Cambricon",
            plugin="torch_mlu",
            collectives="cncl",
            resources=("cambricon.com/",),
            kernels=_NO_TRITON,
            no_graphs=_NO_GRAPHS,
        ),
    }
)
"""Type of device, as torch and `hardware.device` spell it -> what is particular to it. A plugin is loaded by torch
itself when it is imported (entry points `torch.backends`)."""


def of_resource(resource_name: str) -> tuple[str, Vendor] | None:
    """Type and row of the devices of a Kubernetes resource; None for one that is in no row."""
    for kind, vendor in VENDORS.items():
        if resource_name.startswith(vendor.resources):
            return kind, vendor
    return None
