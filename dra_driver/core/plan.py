"""What would be done for a claim, or why not. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dra_driver.core.configs import DecodedConfig, config_for
from dra_driver.model.claim import AllocationResult, Claim
from dra_driver.model.device import Device
from dra_driver.model.errors import GiveUp, RetryLater, TellUser
from dra_driver.model.strategy import DO_WITHOUT, not_offered
from dra_driver.ports import SharingMode


class StillHeld(RetryLater):
    """Another claim holds one of the devices; it may let go at any moment."""


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    result: AllocationResult
    device: Device


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one claim that are shared together: they have the same configuration."""

    config: DecodedConfig
    members: tuple[PlannedDevice, ...]


def plan(
    claim: Claim,
    pool: str,
    devices: Mapping[str, Device],
    decoded: Sequence[DecodedConfig],
    modes: Mapping[str, SharingMode],
    holders: Mapping[str, Sequence[str]],
    absent: Mapping[str, str],
    taken: Mapping[str, str],
) -> tuple[Group, ...]:
    """Groups in the order of their first result. `devices` are those that exist by name, `holders` the other claims
    (in words) that hold a device of this claim, `absent` why a device may not exist now (in words, empty if nothing says),
    `taken` why one is not for claims now, though it exists.

    GiveUp: a result names another pool or a device that this node does not have. RetryLater: a device is in trouble, or
    still held by another claim, or by others. TellUser: the configuration cannot be applied.
    """
    doing = f"preparing {claim.ref}"
    if not claim.results:
        raise GiveUp(
            doing, "no device of this driver is allocated to it", "look at its status.allocation.devices.results"
        )
    groups: dict[int, tuple[DecodedConfig, list[PlannedDevice]]] = {}
    for result in claim.results:
        if result.pool != pool:
            raise GiveUp(
                doing,
                f"device {result.device} was allocated from pool {result.pool}, this node publishes pool {pool}",
                "delete the pod; if it happens again, look for a second publisher with this driver's name",
            )
        device = devices.get(result.device)
        if device is None and absent.get(result.device):
            raise RetryLater(
                doing,
                f"device {result.device} was allocated, but cannot be used now: {absent[result.device]}",
                "delete the pod to get another device",
            )
        if device is None:
            raise GiveUp(
                doing,
                f"device {result.device} was allocated, but this node has no such device (any more)",
                "see what it has with `dra-driver devices`; delete the pod so that another device is allocated",
            )
        if not result.admin_access and holders.get(result.device):
            raise StillHeld(
                doing,
                f"device {result.device} is still prepared for {', '.join(holders[result.device])}",
                "wait until the kubelet has unprepared that claim; if its pod is gone for good, restart the kubelet",
            )
        if not result.admin_access and result.device in taken:
            raise RetryLater(
                doing,
                f"device {result.device} {taken[result.device]}",
                "end that pod, or delete this one to get another device; a node is best left to either claims or a device "
                "plugin (`dra-driver migrate` says how to get there)",
            )
        config = config_for(claim.ref, result, device.kind, claim.configs, decoded)
        _refuse_unsupported(doing, result, device, config, modes)
        groups.setdefault(id(config), (config, []))[1].append(PlannedDevice(result, device))
    return tuple(Group(config, tuple(members)) for config, members in groups.values())


def _refuse_unsupported(
    doing: str, result: AllocationResult, device: Device, config: DecodedConfig, modes: Mapping[str, SharingMode]
) -> None:
    mode = modes.get(config.strategy)
    if mode is None:
        raise TellUser(
            doing,
            f"request {result.request} {not_offered(config.strategy, modes)}",
            DO_WITHOUT,
        )
    refusal = mode.refusal(config.value, device.kind)
    if refusal is not None:
        raise TellUser(
            doing, f"request {result.request}: {refusal}", "change the configuration of the claim or DeviceClass"
        )
