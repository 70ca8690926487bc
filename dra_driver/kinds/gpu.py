"""Kind `gpu`: a whole physical GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dra_driver.kinds.attributes import GPU_ATTRIBUTES, GPU_CAPACITY
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.device import Device, LiveDevice
from dra_driver.model.errors import RetryLater
from dra_driver.model.gpu import Gpu, Inventory, PciAddress
from dra_driver.model.record import Effect
from dra_driver.ports import DriverFiles, Hardware, Journal

_NAME = re.compile(r"gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])")


def device_name(pci: PciAddress) -> str:
    """`gpu-0000-1b-00-0`: a DNS label, the same after a restart, a reboot and a re-enumeration."""
    return f"gpu-{str(pci).replace(':', '-').replace('.', '-')}"


def pci_of(device: str) -> PciAddress:
    """The inverse of `device_name`; ValueError if this is not the name of a full GPU."""
    match = _NAME.fullmatch(device)
    if match is None:
        raise ValueError(f"{device!r} is not a full GPU's device name like gpu-0000-1b-00-0")
    return PciAddress.parse("{}:{}:{}.{}".format(*match.groups()))


class GpuKind:
    """A full GPU exists already: to acquire it is to prove that it answers. Implements `ports.Kind`."""

    name = "gpu"

    def __init__(self, hardware: Hardware, files: DriverFiles) -> None:
        self._hardware = hardware
        self._files = files

    def advertise(self, inventory: Inventory) -> Sequence[Device]:
        """Every GPU but those in MIG mode: a process cannot use such a GPU as a whole."""
        return tuple(
            _device(gpu) for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.pci) if not (gpu.mig and gpu.mig.enabled)
        )

    def acquire(self, device: Device, journal: Journal) -> LiveDevice:  # noqa: ARG002 - nothing is changed
        gpu = self._hardware.gpu(str(device.gpu))
        if gpu is None:
            raise RetryLater(
                f"preparing device {device.name}",
                f"the GPU at {device.gpu} does not answer",
                "look at `nvidia-smi` and at `dmesg | grep -i xid` on this node; a lost GPU needs a reset or a reboot",
            )
        if gpu.mig and gpu.mig.enabled:
            raise RetryLater(
                f"preparing device {device.name}",
                f"MIG mode of the GPU at {device.gpu} was turned on since the device was published",
                "turn it off (`nvidia-smi -mig 0`) or delete the pod so that another GPU is allocated",
            )
        return _live(device.name, gpu)

    def find(self, device: str, uuid: str) -> LiveDevice | None:
        gpu = self._hardware.gpu(str(pci_of(device)))
        return _live(device, gpu) if gpu is not None and gpu.uuid == uuid else None

    def edits(self, live: LiveDevice) -> ContainerEdits:
        return self._files.gpu_edits(live.gpu, live.minor)

    def undo(self, effect: Effect) -> None:
        """Nothing was changed, so nothing is to be restored."""


def _device(gpu: Gpu) -> Device:
    attributes = {row.name: value for row in GPU_ATTRIBUTES if (value := row.value(gpu)) is not None}
    capacity = {name: value for name, _, amount in GPU_CAPACITY if (value := amount(gpu)) is not None}
    return Device(name=device_name(gpu.pci), kind="gpu", gpu=gpu.pci, attributes=attributes, capacity=capacity)


def _live(name: str, gpu: Gpu) -> LiveDevice:
    return LiveDevice(
        name=name,
        kind="gpu",
        uuid=gpu.uuid,
        gpu_uuid=gpu.uuid,
        gpu=gpu.pci,
        minor=gpu.minor,
        architecture=gpu.architecture,
    )
