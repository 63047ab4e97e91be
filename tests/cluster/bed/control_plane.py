"""etcd, API server, controllers and scheduler: their files and command lines."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from bed import layout as layout_
from bed import machine, network

ETCD_URL = "http://127.0.0.1:2379"
PORT = 6443
PARTS_USER = "bed-parts"
"""Scheduler, controllers, kubelet and proxy."""
KUBELET_CLIENT = "bed-apiserver"
"""The API server towards the kubelet."""
MANY = 100_000
"""Megabytes of audit log before it would be rotated: never in a test."""


@dataclass(frozen=True)
class Part:
    """One process of the bed."""

    name: str
    command: list[str]
    is_ready: Callable[[], bool] = lambda: True


def program(name: str) -> str:
    return str(machine.programs_folder() / name)


def server_url(net: network.Network) -> str:
    return f"https://{net.node}:{PORT}"


def write_files(layout: layout_.Layout, record: layout_.Record, net: network.Network) -> None:
    """Keys, tokens and kubeconfigs, the audit policy."""
    layout.pki("").mkdir(mode=0o700, parents=True, exist_ok=True)
    layout.logs.mkdir(exist_ok=True)
    key, public = str(layout.pki("sa.key")), str(layout.pki("sa.pub"))
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    _openssl("ec", "-in", key, "-pubout", "-out", public)
    # What the API server shows to the kubelet: logs, exec and port-forward need it.
    _openssl(
        *("req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-subj", f"/O=system:masters/CN={KUBELET_CLIENT}"),
        *("-keyout", str(layout.pki("kubelet-client.key")), "-out", str(layout.pki("kubelet-client.crt"))),
    )
    # Two users with all rights, so that the audit log tells the tests' requests from those of the cluster's parts.
    users = {"admin": layout.kubeconfig, PARTS_USER: layout.parts_kubeconfig}
    tokens = {user: secrets.token_hex(16) for user in users}
    layout.pki("tokens.csv").write_text("".join(f"{tokens[user]},{user},{user},system:masters\n" for user in users))
    for user, path in users.items():
        path.write_text(json.dumps(_kubeconfig(layout, net, tokens[user]), indent=1))
        path.chmod(0o600)
    if record.options.audit_policy is not None:
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **record.options.audit_policy}
        (layout.state / "audit-policy.json").write_text(json.dumps(policy))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], capture_output=True, check=True)


def _kubeconfig(layout: layout_.Layout, net: network.Network, token: str) -> dict[str, object]:
    # The certificate that the API server makes for itself is also its own authority.
    cluster = {"server": server_url(net), "certificate-authority": str(layout.pki("apiserver.crt"))}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "bed", "user": {"token": token}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "bed"}}],
        "current-context": "bed",
    }


def etcd(layout: layout_.Layout) -> Part:
    command = [program("etcd"), "--data-dir", str(layout.state / "etcd"), "--unsafe-no-fsync"]
    return Part("etcd", command)


def apiserver(
    layout: layout_.Layout, record: layout_.Record, net: network.Network, is_ready: Callable[[], bool]
) -> Part:
    command = [
        program("kube-apiserver"),
        f"--etcd-servers={ETCD_URL}",
        f"--secure-port={PORT}",
        f"--advertise-address={net.node}",
        f"--cert-dir={layout.pki('')}",
        f"--service-account-key-file={layout.pki('sa.pub')}",
        f"--service-account-signing-key-file={layout.pki('sa.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={net.services}",
        "--authorization-mode=Node,RBAC",
        f"--token-auth-file={layout.pki('tokens.csv')}",
        f"--kubelet-client-certificate={layout.pki('kubelet-client.crt')}",
        f"--kubelet-client-key={layout.pki('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
    ]
    if record.options.audit_policy is not None:
        command += [
            f"--audit-policy-file={layout.state / 'audit-policy.json'}",
            f"--audit-log-path={layout.audit_log}",
            f"--audit-log-maxsize={MANY}",
        ]
    return Part("apiserver", command, is_ready)


def controllers(layout: layout_.Layout) -> Part:
    command = [
        program("kube-controller-manager"),
        f"--kubeconfig={layout.parts_kubeconfig}",
        f"--service-account-private-key-file={layout.pki('sa.key')}",
        f"--root-ca-file={layout.pki('apiserver.crt')}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--kube-api-qps=200",  # a thousand services at once shall wait for our operator, not for this
        "--kube-api-burst=400",
    ]
    return Part("controllers", command)


def scheduler(layout: layout_.Layout) -> Part:
    return Part(
        "scheduler", [program("kube-scheduler"), f"--kubeconfig={layout.parts_kubeconfig}", "--leader-elect=false"]
    )
