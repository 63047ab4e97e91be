"""Which processes a bed consists of, in the order they are started."""

from __future__ import annotations

import subprocess

from bed import control_plane, errors, node
from bed import layout as layout_


def names(options: layout_.Options) -> list[str]:
    """Names of the parts, first to start first."""
    if options.size == "node":
        return ["etcd", "apiserver", "controllers", "scheduler", "containerd", "kubelet", "proxy"]
    return ["etcd", "apiserver", *(["controllers"] if options.controllers else [])]


def part(name: str, layout: layout_.Layout, record: layout_.Record) -> control_plane.Part:
    """Command line and readiness of one of them. Raises `BedError` for another name."""
    net = record.network
    if net is None or name not in names(record.options):
        raise errors.BedError(f"got the part {name!r}, expected one of {', '.join(names(record.options))}")
    makers = {
        "etcd": lambda: control_plane.etcd(layout),
        "apiserver": lambda: control_plane.apiserver(layout, record, net, lambda: _api_is_ready(layout)),
        "controllers": lambda: control_plane.controllers(layout),
        "scheduler": lambda: control_plane.scheduler(layout),
        "containerd": lambda: node.containerd(layout, lambda: _containerd_is_ready(layout)),
        "kubelet": lambda: node.kubelet(layout, net),
        "proxy": lambda: node.proxy(layout, net),
    }
    return makers[name]()


def _api_is_ready(layout: layout_.Layout) -> bool:
    command = [control_plane.program("kubectl"), f"--kubeconfig={layout.kubeconfig}", "get", "--raw", "/readyz"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _containerd_is_ready(layout: layout_.Layout) -> bool:
    try:
        node.ctr(layout, "version")
    except subprocess.CalledProcessError:
        return False
    return True
