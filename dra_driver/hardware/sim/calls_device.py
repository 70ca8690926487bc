"""What one device is and how it is set: names, memory, PCI, modes, processes."""

# ruff: noqa: ARG001 - the arguments are those of the C function, needed or not

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

from dra_driver.hardware.sim import arguments as c
from dra_driver.hardware.sim.calls import Call, Target
from dra_driver.hardware.sim.codes import Code, Refused
from dra_driver.hardware.sim.facts import ADDRESSING_MODES, ARCHITECTURES, BRANDS, MIB
from dra_driver.hardware.sim.mig_rules import mig_devices, mig_name
from dra_driver.hardware.sim.session import Session

T = TypeVar("T")
_COMPUTE_MODES: Final = (0, 2, 3)  # default, prohibited, exclusive process; 1 was exclusive thread, gone
_MEMORY_V2: Final = 0x02000028
_ADDRESSING_V1: Final = 0x01000008


def uuid(session: Session, target: Target, out: Any, length: Any) -> None:
    c.put_text(out, length, target.compute["uuid"] if target.is_mig else target.gpu.uuid)


def name(session: Session, target: Target, out: Any, length: Any) -> None:
    text = target.gpu.product.name
    if target.is_mig:
        text = f"{text} MIG {mig_name(session.machine, target)}"
    c.put_text(out, length, text)


def index(session: Session, target: Target, out: Any) -> None:
    if target.is_mig:
        tokens = [ci["token"] for _, ci in mig_devices(target.state)]
        return c.put_int(out, tokens.index(target.compute["token"]))
    return c.put_int(out, session.present(session.file.read()).index(target.gpu))


def minor_number(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, target.gpu.minor)


def serial(session: Session, target: Target, out: Any, length: Any) -> None:
    c.put_text(out, length, _required(target.gpu.serial))


def brand(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, BRANDS[target.gpu.product.brand])


def architecture(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, ARCHITECTURES[target.gpu.product.architecture])


def compute_capability(session: Session, target: Target, major: Any, minor: Any) -> None:
    first, _, second = target.gpu.product.compute_capability.partition(".")
    c.put_int(major, int(first))
    c.put_int(minor, int(second))


def memory_info(session: Session, target: Target, out: Any) -> None:
    """total, free, used; `used` holds what the driver keeps for itself."""
    total, reserved, used = _memory(session, target)
    c.put_bytes(out, struct.pack("<3Q", total, total - reserved - used, reserved + used))


def memory_info_v2(session: Session, target: Target, out: Any) -> None:
    """version, total, reserved, free, used."""
    c.struct_version(out, _MEMORY_V2)
    total, reserved, used = _memory(session, target)
    c.put_bytes(out, struct.pack("<I4x4Q", _MEMORY_V2, total, reserved, total - reserved - used, used))


def _memory(session: Session, target: Target) -> tuple[int, int, int]:
    processes = target.state["processes"]
    if not target.is_mig:
        product = target.gpu.product
        return product.memory_bytes, product.reserved_mib * MIB, sum(p["memory"] for p in processes)
    board = session.machine.board(target.gpu)
    profile = board.profile(target.instance["profile"]) if board else None
    total = profile.memory * MIB if profile else 0
    return total, 0, sum(p["memory"] for p in processes if p["gi"] == target.instance["id"])


def pci_info_v3(session: Session, target: Target, out: Any) -> None:
    c.put_bytes(out, pci_info(target.gpu.pci, target.gpu.product.pci_device_id, target.gpu.product.pci_subsystem_id))


def pci_info(pci: str, device_id: int, subsystem_id: int) -> bytes:
    """nvmlPciInfo_t: legacy id (4-digit domain), domain, bus, device, ids, id with an 8-digit domain."""
    domain, bus, rest = pci.split(":")
    legacy = f"{domain}:{bus}:{rest}".upper().encode()
    long = f"{int(domain, 16):08X}:{bus}:{rest}".upper().encode()
    slot = int(rest.split(".")[0], 16)
    return struct.pack("<16s5I32s", legacy, int(domain, 16), int(bus, 16), slot, device_id, subsystem_id, long)


def num_gpu_cores(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, target.gpu.product.cores)


def memory_bus_width(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, _required(target.gpu.product.memory_bus_bits))


def module_id(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, _required(target.gpu.module_id))


def numa_node_id(session: Session, target: Target, out: Any) -> None:
    """Only where the GPU's own memory is a NUMA node; not the node of the nearest CPU."""
    c.put_int(out, _required(target.gpu.memory_numa_node))


def memory_affinity(session: Session, target: Target, size: Any, out: Any, scope: Any) -> None:
    node = target.gpu.numa_node
    words = [0] * c.number(size)
    if node < 0 or node // 64 >= len(words):
        raise Refused(Code.NOT_SUPPORTED)
    words[node // 64] = 1 << node % 64
    c.put_bytes(out, struct.pack(f"<{len(words)}Q", *words))


def addressing_mode(session: Session, target: Target, out: Any) -> None:
    c.struct_version(out, _ADDRESSING_V1)
    c.put_bytes(out, struct.pack("<II", _ADDRESSING_V1, ADDRESSING_MODES[target.gpu.product.addressing_mode]))


def virtualization_mode(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, session.machine.virtualization)


def power_limit(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, target.gpu.product.power_limit_w * 1000)  # milliwatts


def compute_mode(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, target.state["compute_mode"])


def set_compute_mode(session: Session, target: Target, mode: Any) -> None:
    wanted = c.number(mode)
    if wanted not in (*_COMPUTE_MODES, 1):
        raise Refused(Code.INVALID_ARGUMENT)
    if wanted not in _COMPUTE_MODES or target.state["mig"]:  # nvml.h: fixed to default while MIG is on
        raise Refused(Code.NOT_SUPPORTED)
    with session.file.change() as state:
        session.reachable(target.gpu.pci, state)["compute_mode"] = wanted


def persistence_mode(session: Session, target: Target, out: Any) -> None:
    c.put_int(out, target.state["persistence"])


def set_persistence_mode(session: Session, target: Target, mode: Any) -> None:
    wanted = c.number(mode)
    if wanted not in (0, 1):
        raise Refused(Code.INVALID_ARGUMENT)
    with session.file.change() as state:
        session.reachable(target.gpu.pci, state)["persistence"] = wanted


def compute_processes(session: Session, target: Target, count: Any, out: Any) -> None:
    """Rows of pid, bytes, GPU instance, compute instance. Asking with no room for any row is how to learn the number."""
    rows = [
        struct.pack("<I4xQII", p["pid"], p["memory"], p["gi"], p["ci"])
        for p in target.state["processes"]
        if not target.is_mig or (p["gi"], p["ci"]) == (target.instance["id"], target.compute["id"])
    ]
    room = c.read_int(count)
    c.put_int(count, len(rows))
    if room < len(rows):
        raise Refused(Code.INSUFFICIENT_SIZE)
    if rows:
        c.put_bytes(out, b"".join(rows))


def no_processes(session: Session, target: Target, count: Any, out: Any) -> None:
    c.put_int(count, 0)


def _required(value: T | None) -> T:
    if value is None:
        raise Refused(Code.NOT_SUPPORTED)
    return value


CALLS: Final = (
    Call("nvmlDeviceGetUUID", uuid, mig=True),
    Call("nvmlDeviceGetName", name, mig=True),
    Call("nvmlDeviceGetIndex", index, mig=True),
    Call("nvmlDeviceGetMinorNumber", minor_number, mig=True),
    Call("nvmlDeviceGetSerial", serial),
    Call("nvmlDeviceGetBrand", brand),
    Call("nvmlDeviceGetArchitecture", architecture),
    Call("nvmlDeviceGetCudaComputeCapability", compute_capability, mig=True),
    Call("nvmlDeviceGetMemoryInfo", memory_info, mig=True),
    Call("nvmlDeviceGetMemoryInfo_v2", memory_info_v2, mig=True),
    Call("nvmlDeviceGetPciInfo_v3", pci_info_v3),
    Call("nvmlDeviceGetNumGpuCores", num_gpu_cores),
    Call("nvmlDeviceGetMemoryBusWidth", memory_bus_width),
    Call("nvmlDeviceGetModuleId", module_id),
    Call("nvmlDeviceGetNumaNodeId", numa_node_id, since=570),
    Call("nvmlDeviceGetMemoryAffinity", memory_affinity),
    Call("nvmlDeviceGetAddressingMode", addressing_mode, since=580),
    Call("nvmlDeviceGetVirtualizationMode", virtualization_mode),
    Call("nvmlDeviceGetPowerManagementLimit", power_limit),
    Call("nvmlDeviceGetPowerManagementDefaultLimit", power_limit),
    Call("nvmlDeviceGetEnforcedPowerLimit", power_limit),
    Call("nvmlDeviceGetComputeMode", compute_mode),
    Call("nvmlDeviceSetComputeMode", set_compute_mode),
    Call("nvmlDeviceGetPersistenceMode", persistence_mode),
    Call("nvmlDeviceSetPersistenceMode", set_persistence_mode),
    Call("nvmlDeviceGetComputeRunningProcesses_v3", compute_processes, mig=True),
    Call("nvmlDeviceGetGraphicsRunningProcesses_v3", no_processes, mig=True),
    Call("nvmlDeviceGetMPSComputeRunningProcesses_v3", no_processes, mig=True),
)
