"""containerd, kubelet and kube-proxy: their files and command lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable

from bed import control_plane, images, machine, network, userland
from bed import layout as layout_

NODE = "bed-node"
NAMESPACE = "k8s.io"
"""containerd's own namespace for what the kubelet runs."""
SECONDS_UNTIL_FILES_CHANGE = 5
"""How often the kubelet looks whether a mounted ConfigMap or Secret changed (a minute as delivered)."""


def containerd(layout: layout_.Layout, is_ready: Callable[[], bool]) -> control_plane.Part:
    command = [control_plane.program("containerd"), "-c", str(layout.state / "containerd.toml")]
    return control_plane.Part("containerd", command, is_ready)


def kubelet(layout: layout_.Layout, net: network.Network) -> control_plane.Part:
    folder = layout.state / "kubelet"
    command = [
        control_plane.program("kubelet"),
        f"--config={layout.state / 'kubelet.json'}",
        f"--kubeconfig={layout.parts_kubeconfig}",
        f"--root-dir={folder}",
        f"--cert-dir={folder / 'pki'}",
        f"--hostname-override={NODE}",
        f"--node-ip={net.node}",
    ]
    return control_plane.Part("kubelet", command)


def proxy(layout: layout_.Layout, net: network.Network) -> control_plane.Part:
    command = [
        control_plane.program("kube-proxy"),
        f"--kubeconfig={layout.parts_kubeconfig}",
        f"--hostname-override={NODE}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={net.pods}",
        "--conntrack-max-per-core=0",  # the limit belongs to the whole machine
    ]
    return control_plane.Part("proxy", command)


def write_files(layout: layout_.Layout, net: network.Network, mounts: Iterable[userland.Mount]) -> None:
    cni = layout.state / "cni"
    for folder in (cni, layout.run, layout.state / "kubelet"):
        folder.mkdir(parents=True, exist_ok=True)
    (cni / "10-bed.conflist").write_text(json.dumps(_cni(layout, net)))
    (layout.state / "container.json").write_text(json.dumps(_container_defaults(mounts)))
    (layout.state / "containerd.toml").write_text(_containerd(layout))
    # A pod that asks for a name shall hear no at once: nothing listens there, and nothing leaves the bed.
    (layout.state / "resolv.conf").write_text(f"nameserver {net.node}\n")
    (layout.state / "kubelet.json").write_text(json.dumps(_kubelet(layout), indent=1))


def import_image(layout: layout_.Layout, archive: str) -> None:
    """Raises `CalledProcessError`."""
    ctr(layout, "images", "import", archive)


def ctr(layout: layout_.Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [control_plane.program("ctr"), "-a", str(layout.socket), "-n", NAMESPACE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def _cni(layout: layout_.Layout, net: network.Network) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": str(layout.state / "addresses"),
        "ranges": [[{"subnet": str(net.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": net.namespace, "plugins": [bridge, ports]}


def _container_defaults(mounts: Iterable[userland.Mount]) -> dict[str, object]:
    """containerd's own defaults for a container, and our mounts."""
    made = subprocess.run([control_plane.program("ctr"), "oci", "spec"], capture_output=True, text=True, check=True)
    spec: dict[str, object] = json.loads(made.stdout)
    own = spec["mounts"]
    assert isinstance(own, list)
    own += [
        {
            "type": "bind",
            "source": str(mount.source),
            "destination": str(mount.target),
            "options": ["rbind", "ro", "nosuid", "nodev"],
        }
        for mount in mounts
    ]
    return spec


def _containerd(layout: layout_.Layout) -> str:
    return f"""\
version = 3
root = "{layout.state}/containerd"
state = "{layout.run}/containerd"

[grpc]
  address = "{layout.socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.state}/opt"

# Its socket has one fixed place on the machine: two beds would fight for it.
[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{layout.state}/container.json"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  Root = "{layout.run}/runc"

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{machine.programs_folder()}"]
  conf_dir = "{layout.state}/cni"
"""


def _kubelet(layout: layout_.Layout) -> dict[str, object]:
    configuration: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki("kubelet-client.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.socket}",
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # a developer's full disk must not delete images that nothing can pull
        "syncFrequency": f"{SECONDS_UNTIL_FILES_CHANGE}s",
        "nodeStatusUpdateFrequency": "2s",  # how soon pretended devices count
        "eventRecordQPS": 0,
        "maxPods": 250,
        "podLogsDir": str(layout.state / "pod-logs"),
        "volumePluginDir": str(layout.state / "volume-plugins"),
        "resolvConf": str(layout.state / "resolv.conf"),
    }
    if not machine.has_cgroup_v2():
        configuration["failCgroupV1"] = False
    return configuration
