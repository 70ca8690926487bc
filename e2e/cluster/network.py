"""The cluster's own network: one bridge in the control plane's namespace, a cable to the host and one to each node.

On the host there is one interface with one address and nothing else: no bridge, no iptables rule, no forwarding.
It goes when the control plane's namespace goes.

    host .1 --- [control plane .2, bridge] --- node .11, node .12, ...          all in 10.213.N.0/24
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError

POOL = tuple(f"10.213.{number}" for number in range(256))
PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Who has which address, from the first three numbers of the cluster's /24."""

    subnet: str

    @property
    def host(self) -> str:
        return f"{self.subnet}.1"

    @property
    def control_plane(self) -> str:
        return f"{self.subnet}.2"

    def node(self, number: int) -> str:
        return f"{self.subnet}.{11 + number}"

    @staticmethod
    def pods(number: int) -> str:
        return f"10.244.{number + 1}.0/24"


def interface(cluster: str) -> str:
    """Name of the host's end: 15 characters are the kernel's limit, so long names are cut and told apart by a hash."""
    return f"dra-{cluster}" if len(cluster) <= 11 else f"dra-{cluster[:6]}-{_digest(cluster)[:4]}"


def free_subnet(taken: Iterable[str]) -> str:
    """The first /24 of the pool that no other cluster and no route of the host uses."""
    routes = json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]")
    used = [ipaddress.ip_network(route["dst"], strict=False) for route in routes if "/" in route["dst"]]
    used += [ipaddress.ip_network(f"{subnet}.0/24") for subnet in taken]
    for subnet in POOL:
        if not any(ipaddress.ip_network(f"{subnet}.0/24").overlaps(other) for other in used):
            return subnet
    raise ClusterError(f"choosing a subnet: all of {POOL[0]}.0 to {POOL[-1]}.255 is in use; take a cluster down")


def connect_control_plane(cluster: str, pid: int, addresses: Addresses, nodes: int) -> None:
    remove(cluster)
    _ip("link", "add", interface(cluster), "type", "veth", "peer", "name", "host0", "netns", str(pid))
    _ip("address", "add", f"{addresses.host}/24", "dev", interface(cluster))
    _ip("link", "set", interface(cluster), "up")
    # An own MAC: a bridge otherwise takes the lowest of its ports and changes it as nodes come and go.
    _ip("link", "add", "br0", "address", _mac(cluster, "br0"), "type", "bridge", inside=pid)
    _ip("link", "set", "host0", "master", "br0", "up", inside=pid)
    _ip("address", "add", f"{addresses.control_plane}/24", "dev", "br0", inside=pid)
    _ip("link", "set", "br0", "up", inside=pid)
    _ip("link", "set", "lo", "up", inside=pid)
    for number in range(nodes):  # the API server calls webhooks in pods
        _ip("route", "add", addresses.pods(number), "via", addresses.node(number), inside=pid)


def connect_node(
    cluster: str, name: str, number: int, pid: int, control_plane: int, addresses: Addresses, nodes: int
) -> None:
    port = f"node{number}"
    # The same MAC after a reboot, so that nobody's neighbour table misleads.
    peer = ("peer", "name", "eth0", "address", _mac(cluster, name), "netns", str(pid))
    # The kernel takes a dead machine's network apart in its own time: after a quick reboot the old cable may still be there.
    with contextlib.suppress(ClusterError):
        _ip("link", "delete", port, inside=control_plane)
    _ip("link", "add", port, "type", "veth", *peer, inside=control_plane)
    _ip("link", "set", port, "master", "br0", "up", inside=control_plane)
    _ip("link", "set", "lo", "up", inside=pid)
    _ip("address", "add", f"{addresses.node(number)}/24", "dev", "eth0", inside=pid)
    _ip("link", "set", "eth0", "up", inside=pid)
    _ip("route", "add", "default", "via", addresses.control_plane, inside=pid)
    for other in range(nodes):
        if other != number:
            _ip("route", "add", addresses.pods(other), "via", addresses.node(other), inside=pid)


def set_cable(number: int, control_plane: int, *, plugged: bool) -> None:
    _ip("link", "set", f"node{number}", "up" if plugged else "down", inside=control_plane)


def detour(number: int, control_plane: int) -> tuple[str, str]:
    """Takes a node's cable out of the bridge. The interfaces between which somebody has to carry its frames from now on."""
    port, end = f"node{number}", f"slow{number}"
    _ip("link", "add", end, "type", "veth", "peer", "name", f"{end}-br0", inside=control_plane)
    _ip("link", "set", f"{end}-br0", "master", "br0", "up", inside=control_plane)
    _ip("link", "set", port, "nomaster", inside=control_plane)
    for interface in (port, end):  # no longer the bridge's, they would answer for its address
        _ip("link", "set", interface, "arp", "off", "up", inside=control_plane)
    return port, end


def straighten(number: int, control_plane: int) -> None:
    """Ends the detour, if there is one."""
    with contextlib.suppress(ClusterError):
        _ip("link", "delete", f"slow{number}", inside=control_plane)
        _ip("link", "set", f"node{number}", "arp", "on", "master", "br0", inside=control_plane)


def listens(pid: int, port: int) -> bool:
    """Whether a TCP port is listened on in the network namespace of a process."""
    # proc(5): "  0: 0100007F:094B 00000000:0000 0A ...", the port in hexadecimal, state 0A is LISTEN.
    tables = [Path(f"/proc/{pid}/net/{table}").read_text() for table in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def present(cluster: str) -> bool:
    return any(link["ifname"] == interface(cluster) for link in json.loads(_ip("-json", "link", "show") or "[]"))


def remove(cluster: str) -> None:
    try:
        if present(cluster):
            _ip("link", "delete", interface(cluster))
    except ClusterError:
        if present(cluster):  # else it went in between, with the namespace of its other end
            raise


def _mac(cluster: str, owner: str) -> str:
    digest = _digest(f"{cluster}/{owner}")
    return ":".join(["02", *(digest[at : at + 2] for at in range(0, 10, 2))])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ip(*arguments: str, inside: int | None = None) -> str:
    enter = [] if inside is None else ["nsenter", f"--net=/proc/{inside}/ns/net"]
    command = [*enter, "ip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"setting up the network with `{' '.join(command)}`: {done.stderr.strip()}")
    return done.stdout
