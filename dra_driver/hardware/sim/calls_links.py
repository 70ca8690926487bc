"""How devices are connected: NVLink, fabric, rack position, PCIe topology."""

# ruff: noqa: ARG001 - the arguments are those of the C function, needed or not

from __future__ import annotations

import struct
from typing import Any, Final

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Target
from dra_driver.hardware.sim.calls_device import pci_info
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.facts import FABRIC_STATES, Fabric, MachineGpu
from dra_driver.hardware.sim.session import Session

_MAX_LINKS: Final = 18  # nvml.h NVML_NVLINK_MAX_LINKS of every driver imitated here
_REMOTE_GPU: Final = 0
_REMOTE_SWITCH: Final = 2
_FABRIC_V2: Final = 0x02000024
_FABRIC_V3: Final = 0x03000028
_FABRIC_V3_SINCE: Final = 580
_HEALTHY: Final = 1
_PLATFORM_V1: Final = 0x0100002C
_PLATFORM_V2: Final = 0x0200002C
_SINGLE, _MULTIPLE, _HOSTBRIDGE, _NODE, _SYSTEM = 10, 20, 30, 40, 50


def nvlink_state(session: Session, target: Target, link: Any, out: Any) -> None:
    _link(target, link)
    c.put_int(out, 1)


def nvlink_version(session: Session, target: Target, link: Any, out: Any) -> None:
    _link(target, link)
    c.put_int(out, target.gpu.product.nvlink_version)


def nvlink_error_counter(session: Session, target: Target, link: Any, counter: Any, out: Any) -> None:
    _link(target, link)
    c.put_long(out, 0)


def nvlink_remote_type(session: Session, target: Target, link: Any, out: Any) -> None:
    _link(target, link)
    c.put_int(out, _REMOTE_GPU if target.gpu.nvlink_peer else _REMOTE_SWITCH)


def nvlink_remote_pci(session: Session, target: Target, link: Any, out: Any) -> None:
    """The bridged GPU, or the NVSwitch that this link goes to; NVLink 5 switches are no PCI devices."""
    number = _link(target, link)
    if target.gpu.nvlink_peer:
        peer = session.gpu(target.gpu.nvlink_peer)
        return c.put_bytes(out, pci_info(peer.pci, peer.product.pci_device_id, peer.product.pci_subsystem_id))
    switches = session.machine.nvswitches
    if not switches:
        raise Refused(Code.NOT_SUPPORTED)
    switch = switches[number * len(switches) // target.gpu.product.nvlink_links]
    return c.put_bytes(out, pci_info(switch, 0, 0))


def _link(target: Target, link: Any) -> int:
    """The number of a link that is there: active, as all links of a simulated machine are."""
    number = c.number(link)
    if not 0 <= number < _MAX_LINKS:
        raise Refused(Code.INVALID_ARGUMENT)
    if number >= target.gpu.product.nvlink_links:
        raise Refused(Code.NOT_SUPPORTED)
    return number


def fabric_info(session: Session, target: Target, out: Any) -> None:
    """The first form, without a version: cluster, status, clique, state."""
    fabric = _fabric(session)
    c.put_bytes(
        out,
        _cluster(fabric) + struct.pack("<3I", fabric.status, fabric.clique_id, FABRIC_STATES[fabric.state]),
    )


def fabric_info_versioned(session: Session, target: Target, out: Any) -> None:
    known = (_FABRIC_V2, _FABRIC_V3) if session.machine.driver_branch >= _FABRIC_V3_SINCE else (_FABRIC_V2,)
    version = c.struct_version(out, *known)
    fabric = _fabric(session)
    state = FABRIC_STATES[fabric.state]
    body = _cluster(fabric) + struct.pack("<4I", fabric.status, fabric.clique_id, state, fabric.health_mask)
    c.put_bytes(out, body if version == 2 else body + struct.pack("<I", _HEALTHY), offset=4)


def _fabric(session: Session) -> Fabric:
    if session.machine.fabric is None:
        raise Refused(Code.NOT_SUPPORTED)
    return session.machine.fabric


def _cluster(fabric: Fabric) -> bytes:
    return bytes.fromhex(fabric.cluster_uuid.replace("-", ""))


def platform_info(session: Session, target: Target, out: Any) -> None:
    """InfiniBand GUID, chassis serial, then five single bytes."""
    c.struct_version(out, _PLATFORM_V1, _PLATFORM_V2)
    platform = session.machine.platform
    if platform is None:
        raise Refused(Code.NOT_SUPPORTED)
    position = (platform.slot, platform.tray, platform.host, platform.peer_type, target.gpu.module_id or 0)
    guid = bytes.fromhex(target.gpu.uuid.removeprefix("GPU-").replace("-", ""))
    c.put_bytes(out, guid + struct.pack("<16s5B", platform.chassis_serial.encode(), *position), offset=4)


def c2c_mode(session: Session, target: Target, out: Any) -> None:
    """nvmlC2cModeInfo_v1_t is one word, and it is no version."""
    c.put_int(out, int(target.gpu.product.c2c))


def common_ancestor(session: Session, target: Target, other: Any, out: Any) -> None:
    key = session.key(c.handle(other), "gpu")
    session.reachable(key.pci, session.file.read())
    c.put_int(out, _level(target.gpu, session.gpu(key.pci)))


def _level(one: MachineGpu, two: MachineGpu) -> int:
    if one == two:
        raise Refused(Code.INVALID_ARGUMENT)
    if one.pcie_root == two.pcie_root:
        shared = sum(1 for a, b in zip(one.bridges, two.bridges, strict=False) if a == b)
        below = max(len(one.bridges), len(two.bridges)) - shared
        if shared >= 2:  # root port and the upstream port of a switch
            return _SINGLE if below <= 1 else _MULTIPLE
        return _HOSTBRIDGE
    return _NODE if one.numa_node == two.numa_node else _SYSTEM


CALLS: Final = (
    Call("nvmlDeviceGetNvLinkState", nvlink_state),
    Call("nvmlDeviceGetNvLinkVersion", nvlink_version),
    Call("nvmlDeviceGetNvLinkErrorCounter", nvlink_error_counter),
    Call("nvmlDeviceGetNvLinkRemoteDeviceType", nvlink_remote_type),
    Call("nvmlDeviceGetNvLinkRemotePciInfo_v2", nvlink_remote_pci),
    Call("nvmlDeviceGetGpuFabricInfo", fabric_info),
    Call("nvmlDeviceGetGpuFabricInfoV", fabric_info_versioned, since=570),
    Call("nvmlDeviceGetPlatformInfo", platform_info, since=570),
    Call("nvmlDeviceGetC2cModeInfoV", c2c_mode, since=570),
    Call("nvmlDeviceGetTopologyCommonAncestor", common_ancestor),
)
