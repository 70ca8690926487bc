"""Device: what this node promises to the scheduler. LiveDevice: what exists now. PreparedDevice: what is on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.gpu import PciAddress


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version 2.0.0 without leading `v`, as the `version` attribute type wants it."""

    text: str

    def __str__(self) -> str:
        return self.text


AttributeValue = bool | int | str | Version


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of a ResourceSlice.

    `attributes` and `capacity` (bytes or plain counts) are keyed by the name as published (`uuid`,
    `resource.kubernetes.io/pcieRoot`). `counters` maps counter set -> counter -> amount. `gpu` is the PCI address of the
    physical GPU on which the device sits: health verdicts and locks go by it.
    """

    name: str
    kind: str
    gpu: PciAddress
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, int]
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """A device that exists now. `gpu_uuid` is the physical GPU's UUID; for a full GPU it equals `uuid`."""

    name: str
    kind: str
    uuid: str
    gpu_uuid: str
    gpu: PciAddress
    minor: int
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One allocation result of a claim as it was prepared. `request` is the name without the sub-request part.

    `sharing_edits` are what the sharing mode added for this device: they are recorded because they cannot be told from
    the hardware; everything else in the CDI spec is rendered anew from what exists.
    """

    request: str
    pool: str
    device: str
    kind: str
    uuid: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None
    admin_access: bool = False
    sharing_edits: ContainerEdits = field(default_factory=ContainerEdits)
