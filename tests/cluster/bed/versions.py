"""Every version the test bed is made of, in one place, and which programs come out of which Go module."""

from __future__ import annotations

from dataclasses import dataclass

GO = "1.26.0"
"""The oldest Go that builds all of it."""
GO_THAT_FETCHES_ANOTHER = "1.21.0"
"""From here on an older Go downloads the toolchain that a go.mod asks for, as a module."""

KUBERNETES = "1.37.2"


@dataclass(frozen=True)
class Module:
    """One Go module and the programs that are built from it."""

    path: str
    version: str
    programs: tuple[tuple[str, str], ...]
    """Name of the program -> its package below the module's path."""
    ldflags: str = ""


MODULES = (
    Module(
        "go.etcd.io/etcd/server/v3",
        "v3.7.3",
        (("etcd", ""),),
    ),
    Module(
        "k8s.io/kubernetes",
        f"v{KUBERNETES}",
        tuple(
            (name, f"/cmd/{name}")
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kubectl",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
            )
        ),
        ldflags=f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
        f" -X k8s.io/component-base/version.gitMajor={KUBERNETES.split('.')[0]}"
        f" -X k8s.io/component-base/version.gitMinor={KUBERNETES.split('.')[1]}",
    ),
    Module(
        "github.com/containerd/containerd/v2",
        "v2.4.2",
        tuple((name, f"/cmd/{name}") for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    ),
    Module(
        "github.com/containernetworking/plugins",
        "v1.10.0",
        (
            ("bridge", "/plugins/main/bridge"),
            ("loopback", "/plugins/main/loopback"),
            ("host-local", "/plugins/ipam/host-local"),
            ("portmap", "/plugins/meta/portmap"),
        ),
    ),
    Module(
        "helm.sh/helm/v3",
        "v3.22.0",
        (("helm", "/cmd/helm"),),
    ),
)


@dataclass(frozen=True)
class Definitions:
    """Kinds of somebody else's operator: files of a module that is fetched and not built."""

    path: str
    version: str
    files: tuple[str, ...]
    """Below the module's folder."""


PROMETHEUS_OPERATOR = Definitions(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
        for plural in ("podmonitors", "prometheusrules")
    ),
)
GRAFANA_OPERATOR = Definitions(
    "github.com/grafana/grafana-operator/v5",
    "v5.19.4",
    ("config/crd/bases/grafana.integreatly.org_grafanadashboards.yaml",),
)
DEFINITIONS = (PROMETHEUS_OPERATOR, GRAFANA_OPERATOR)

API_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
"""All that the smaller bed needs."""
POD_PROGRAM = "pod-program"
"""Our own static program for pods (`pod/main.go`): pause, a small server, a small client."""

TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "openssl": "openssl", "sysctl": "procps"}
"""Programs of the machine that both sizes need -> Debian package."""
NODE_TOOLS = {"runc": "runc", "nft": "nftables", "iptables": "iptables", "conntrack": "conntrack"}
"""The same for a node with pods."""
