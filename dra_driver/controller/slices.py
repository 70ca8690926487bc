"""Devices -> the slices of this node's pool, as JSON of one API version. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dra_driver.controller.checks import CounterSets, publishable
from dra_driver.controller.quantity import quantity
from dra_driver.model.device import AttributeValue, Device, Version

# k8s.io/api resource/v1: ResourceSliceMaxDevices, ...WithTaintsOrConsumesCounters, ResourceSliceMaxSharedCounters
DEVICES = 128
DEVICES_WITH_TAINTS_OR_COUNTERS = 64
COUNTER_SETS = 8

Content = dict[str, Any]
"""What one slice holds: `{"devices": [...]}` or `{"sharedCounters": [...]}`. Never both keys: since 1.35 the API server
refuses that, even where one of the lists is empty."""


def desired(
    devices: Iterable[Device], counter_sets: CounterSets, api_version: str
) -> tuple[tuple[Content, ...], tuple[str, ...]]:
    """The contents of the pool's slices in order, and a sentence for everything that had to be left out.

    Counter sets come first, then the devices sorted by name. A pool without devices is one slice without devices: an empty
    pool is not no pool. `api_version` is `v1`, `v1beta2` or `v1beta1`.
    """
    fit, problems = publishable(devices, counter_sets)
    contents: list[Content] = [
        {"sharedCounters": [_counter_set(name, counter_sets[name]) for name in names]}
        for names in _chunks(sorted(counter_sets), COUNTER_SETS)
    ]
    chunks = list(split(fit)) or [()]
    contents += [{"devices": [device_json(device, api_version) for device in chunk]} for chunk in chunks]
    return tuple(contents), problems


def split(devices: Sequence[Device]) -> Iterator[tuple[Device, ...]]:
    """Fills one slice after the other up to the API's limit, which falls to 64 with the first device that has taints or
    counters."""
    chunk: list[Device] = []
    limit = DEVICES
    for device in devices:
        wanted = min(limit, DEVICES_WITH_TAINTS_OR_COUNTERS) if device.taints or device.counters else limit
        if len(chunk) >= wanted:
            yield tuple(chunk)
            chunk = []
            wanted = DEVICES_WITH_TAINTS_OR_COUNTERS if device.taints or device.counters else DEVICES
        chunk.append(device)
        limit = wanted
    if chunk:
        yield tuple(chunk)


def device_json(device: Device, api_version: str) -> dict[str, Any]:
    """One entry of `spec.devices`; v1beta1 has everything but the name under `basic`."""
    body: dict[str, Any] = {}
    if device.attributes:
        body["attributes"] = {name: attribute(device.attributes[name]) for name in sorted(device.attributes)}
    if device.capacity:
        body["capacity"] = {name: {"value": quantity(device.capacity[name])} for name in sorted(device.capacity)}
    if device.counters:
        body["consumesCounters"] = [
            {"counterSet": name, "counters": _counters(device.counters[name])} for name in sorted(device.counters)
        ]
    if device.taints:
        body["taints"] = [
            {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
            for taint in device.taints
        ]
    return {"name": device.name, "basic": body} if api_version == "v1beta1" else {"name": device.name, **body}


def attribute(value: AttributeValue) -> dict[str, Any]:
    """DeviceAttribute: exactly one of bool, int, string, version."""
    if isinstance(value, bool):  # before int: a bool is one
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version": value.text} if isinstance(value, Version) else {"string": value}


def _counter_set(name: str, counters: Mapping[str, int]) -> dict[str, Any]:
    return {"name": name, "counters": _counters(counters)}


def _counters(counters: Mapping[str, int]) -> dict[str, Any]:
    return {name: {"value": quantity(counters[name])} for name in sorted(counters)}


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
