"""A network namespace for each bed: nothing leaves it, and this machine reaches everything in it.

    this machine                         the bed's namespace
    tmbedN  .1/30  ------------------->  host0  .2/30
    route to the bed's /18                node0  the node's address, default route (its other end lies in here too,
                                          so what is sent to the outside goes nowhere)
                                          cni0   pods, made by the bridge plugin

With the one route on this machine a test process outside reaches the API server, pods and Services' cluster
addresses directly: no proxy, no port forwarding, no need to enter the namespace. The addresses come from
198.18.0.0/15, which is set aside for tests and used by no site. A bed takes the first of eight /18 that is free.
"""

from __future__ import annotations

import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bed import errors, machine

RANGE = ipaddress.IPv4Network("198.18.0.0/15")
NAMESPACES = Path("/run/netns")
LINK = "tmbed"


@dataclass(frozen=True)
class Network:
    name: str
    index: int

    @property
    def namespace(self) -> str:
        return f"tidemark-bed-{self.name}"

    @property
    def link(self) -> str:
        return f"{LINK}{self.index}"

    @property
    def block(self) -> ipaddress.IPv4Network:
        return list(RANGE.subnets(new_prefix=18))[self.index]

    @property
    def services(self) -> ipaddress.IPv4Network:
        """8,190 cluster addresses."""
        return next(self.block.subnets(new_prefix=19))

    @property
    def pods(self) -> ipaddress.IPv4Network:
        return list(self.block.subnets(new_prefix=20))[2]

    @property
    def node(self) -> ipaddress.IPv4Address:
        """The node's and the API server's address."""
        return list(self.block.subnets(new_prefix=20))[3][1]

    @property
    def link_outside(self) -> ipaddress.IPv4Interface:
        return ipaddress.IPv4Interface(f"{self._links[1]}/30")

    @property
    def link_inside(self) -> ipaddress.IPv4Interface:
        return ipaddress.IPv4Interface(f"{self._links[2]}/30")

    @property
    def _links(self) -> ipaddress.IPv4Network:
        return list(self.block.subnets(new_prefix=30))[-1]

    def enter(self, *command: str) -> list[str]:
        """The command, run inside. `ip netns exec` would mount another /sys, without the cgroups."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", "--", *command]


def create(name: str) -> Network:
    """Makes namespace, links and route. Raises `MachineError`."""
    _ip("netns", "add", Network(name, 0).namespace)
    network = _with_free_range(name)
    inside = ("-n", network.namespace)
    _ip(*inside, "link", "set", "lo", "up")
    _ip("addr", "add", str(network.link_outside), "dev", network.link)
    _ip(*inside, "addr", "add", str(network.link_inside), "dev", "host0")
    _ip(*inside, "link", "add", "node0", "type", "veth", "peer", "name", "peer0")
    _ip(*inside, "addr", "add", f"{network.node}/32", "dev", "node0")
    for device in ("host0", "node0", "peer0"):
        _ip(*inside, "link", "set", device, "up")
    _ip(*inside, "route", "add", "default", "dev", "node0", "src", str(network.node))
    _ip("link", "set", network.link, "up")
    _ip("route", "add", str(network.block), "via", str(network.link_inside.ip), "dev", network.link)
    _run(network.enter("sysctl", "-qw", "net.ipv4.ip_forward=1"))
    return network


def _with_free_range(name: str) -> Network:
    """Makes the link to this machine, whose name reserves the range. Raises `MachineError` when none is free."""
    numbers = range(2 ** (18 - RANGE.prefixlen))
    for network in (Network(name, index) for index in numbers):
        try:
            _ip("link", "add", network.link, "type", "veth", "peer", "name", "host0", "netns", network.namespace)
        except errors.MachineError as cause:
            if "File exists" not in str(cause):
                raise
        else:
            return network
    raise errors.MachineError(f"all {len(numbers)} ranges for test beds are taken; stop one (`bed status` lists them)")


def remove(name: str) -> None:
    """Removes the namespace; its links and the route go with it."""
    namespace = Network(name, 0).namespace
    if (NAMESPACES / namespace).exists():
        _ip("netns", "del", namespace)


def inode(name: str) -> int | None:
    """Number of the bed's namespace, by which its processes are found."""
    try:
        return (NAMESPACES / Network(name, 0).namespace).stat().st_ino
    except FileNotFoundError:
        return None


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.MachineError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
