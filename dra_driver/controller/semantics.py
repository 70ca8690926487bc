"""When two slices say the same, and what got lost where they do not. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.controller.quantity import value as quantity_value
from dra_driver.controller.slices import Content

# Parts of the spec that say where the slice belongs; the rest is its content.
_PLACE = ("driver", "nodeName", "pool")
_QUANTITIES = ("capacity", "counters")

# k/k pkg/registry/resource/resourceslice/strategy.go: fields that the API server drops while a gate is off.
GATES = {
    "taints": "DRADeviceTaints",
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "perDeviceNodeSelection": "DRAPartitionableDevices",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "nodeAllocatableResources": "DRANodeAllocatableResources",
    "partitionTypeAttribute": "DRAPartitionableDevicesType",
    "skipNodeOperations": "DRAOptionalNodeOperations",
    "compatibilityGroups": "DRADeviceCompatibilityGroups",
}


@dataclass(frozen=True, slots=True)
class Dropped:
    """The API server stored slice `slice_name` otherwise than it was sent: `fields` (`devices.taints`) are missing or
    different there, probably because feature gates `gates` are off."""

    slice_name: str
    fields: tuple[str, ...]
    gates: tuple[str, ...]

    def __str__(self) -> str:
        probably = f"; enable feature gate {', '.join(self.gates)} on the API server" if self.gates else ""
        return (
            f"publishing slice {self.slice_name}: the API server stored {', '.join(self.fields)} otherwise than sent; "
            f"going on with what it stored{probably}"
        )


def content_of(existing: Mapping[str, Any]) -> Content:
    """The content of a slice as the API server has it; {} for anything malformed."""
    spec = existing.get("spec")
    return {key: part for key, part in spec.items() if key not in _PLACE} if isinstance(spec, dict) else {}


def canonical(content: Any) -> Any:
    """A form that is equal exactly when the API server means the same: quantities by value, empty and absent alike, the time
    of a taint (set by the server) left out. Order counts: the scheduler goes by it."""
    return _canonical(content, quantities=False)


def _canonical(node: Any, *, quantities: bool) -> Any:
    if isinstance(node, Mapping):
        result = {}
        for key, part in node.items():
            if key == "attributes" and not quantities:
                form: Any = part
            elif key == "taints" and not quantities:
                form = [_without_time(taint) for taint in part] if isinstance(part, list) else part
            else:
                form = _canonical(part, quantities=quantities or key in _QUANTITIES)
            if form is not None and form not in ({}, []):
                result[key] = form
        return result
    if isinstance(node, list):
        return [_canonical(part, quantities=quantities) for part in node]
    if quantities and isinstance(node, str):
        amount = quantity_value(node)
        return node if amount is None else amount
    return node


def _without_time(taint: Any) -> Any:
    return {key: part for key, part in taint.items() if key != "timeAdded"} if isinstance(taint, dict) else taint


def dropped(slice_name: str, sent: Content, stored: Content) -> Dropped | None:
    """What differs between what was sent and what came back; None when nothing does."""
    fields = tuple(sorted(set(_differences(canonical(sent), canonical(stored), ()))))
    if not fields:
        return None
    gates = (GATES[part] for field in fields for part in reversed(field.split(".")) if part in GATES)
    return Dropped(slice_name, fields, tuple(sorted(set(gates))))


def _differences(sent: Any, stored: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key in sent.keys() | stored.keys():
            inner = path if key == "basic" else (*path, str(key))
            yield from _differences(sent.get(key), stored.get(key), inner)
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for one, other in zip(sent, stored, strict=True):
            yield from _differences(one, other, path)
    elif sent != stored:
        yield ".".join(path)


def with_taint_times(content: Content, existing: Iterable[Mapping[str, Any]]) -> Content:
    """`content` with the time that the API server gave to each taint that is already there. Sent without, every write would
    start the clock of a NoExecute toleration again."""
    times: dict[tuple[str, ...], Any] = {}
    for item in existing:
        for name, taint in _taints(content_of(item)):
            if taint.get("timeAdded"):
                times[_taint_key(name, taint)] = taint["timeAdded"]
    if not times:
        return content
    content = copy.deepcopy(content)
    for name, taint in _taints(content):
        time = times.get(_taint_key(name, taint))
        if time is not None:
            taint["timeAdded"] = time
    return content


def _taints(content: Content) -> Iterator[tuple[str, dict[str, Any]]]:
    for device in _dicts(content.get("devices")):
        basic = device.get("basic")
        for taint in _dicts((basic if isinstance(basic, dict) else device).get("taints")):
            yield str(device.get("name")), taint


def _taint_key(device: str, taint: Mapping[str, Any]) -> tuple[str, ...]:
    return device, str(taint.get("key")), str(taint.get("value") or ""), str(taint.get("effect"))


def _dicts(value: Any) -> Sequence[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
