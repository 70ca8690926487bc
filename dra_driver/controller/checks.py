"""What the API server's validation would refuse, found before anything is sent. Pure.

One bad attribute must not keep a whole node from publishing (the API server refuses a slice as a whole), and cutting a value
short would publish something that is not true. So exactly the offending attribute, taint or device is left out, and the caller
gets a sentence about it. Limits: k8s.io/api resource/v1 types.go (upstream-dra.md section 2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dra_driver.model.device import AttributeValue, Device, Taint, Version

VALUE_BYTES = 64
ENTRIES = 32  # attributes and capacities of a device together
TAINTS = 16
COUNTER_SETS_PER_DEVICE = 2
INT64 = range(-(2**63), 2**63)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_EFFECTS = ("None", "NoSchedule", "NoExecute")

CounterSets = Mapping[str, Mapping[str, int]]


def publishable(devices: Iterable[Device], counter_sets: CounterSets) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices sorted by name, without what the API server would refuse, and a sentence for everything left out."""
    kept: dict[str, Device] = {}
    problems: list[str] = []
    for device in sorted(devices, key=lambda device: device.name):
        why = _refusal(device, counter_sets, kept)
        if why is None:
            kept[device.name], left_out = _trimmed(device)
            problems += left_out
        else:
            problems.append(f"publishing device {device.name!r}: left out: {why}")
    return tuple(kept.values()), tuple(problems)


def _refusal(device: Device, counter_sets: CounterSets, kept: Mapping[str, Device]) -> str | None:
    if not _LABEL.fullmatch(device.name):
        return "a device name is a DNS label of at most 63 characters"
    if device.name in kept:
        # Two devices of one name make the scheduler ignore the whole pool.
        return "another device of this node has the same name"
    if len(device.counters) > COUNTER_SETS_PER_DEVICE:
        return f"it draws from {len(device.counters)} counter sets, {COUNTER_SETS_PER_DEVICE} are allowed"
    for name, counters in device.counters.items():
        # Published without the counter, the device would look independent of those that it excludes.
        unknown = sorted(set(counters) - set(counter_sets.get(name, ())))
        if unknown:
            return f"counter set {name!r} of this pool has no counter {', '.join(unknown)}"
        if not all(0 <= amount in INT64 for amount in counters.values()):
            return f"a counter of set {name!r} is negative or too large"
    return None


def _trimmed(device: Device) -> tuple[Device, list[str]]:
    problems: list[str] = []

    def note(what: str, why: str) -> None:
        problems.append(f"publishing device {device.name!r}: {what} left out: {why}")

    capacity: dict[str, int] = {}
    for name, amount in sorted(device.capacity.items()):
        why = _bad_name(name) or (None if 0 <= amount in INT64 else f"{amount} is negative or too large")
        if why is None and len(capacity) < ENTRIES:
            capacity[name] = amount
        else:
            note(f"capacity {name!r}", why or f"more than {ENTRIES} entries")
    attributes: dict[str, AttributeValue] = {}
    for name, value in sorted(device.attributes.items()):
        why = _bad_name(name) or _bad_value(value)
        if why is None and len(attributes) + len(capacity) < ENTRIES:
            attributes[name] = value
        else:
            note(f"attribute {name!r}", why or f"more than {ENTRIES} attributes and capacities")
    taints: list[Taint] = []
    for taint in sorted(set(device.taints), key=lambda taint: (taint.key, taint.value, taint.effect)):
        why = _bad_taint(taint)
        if why is None and len(taints) < TAINTS:
            taints.append(taint)
        else:
            note(f"taint {taint.key!r}", why or f"more than {TAINTS} taints")
    return replace(device, attributes=attributes, capacity=capacity, taints=tuple(taints)), problems


def _bad_name(name: str) -> str | None:
    domain, slash, identifier = name.rpartition("/")
    if slash and not (len(domain) <= 63 and _SUBDOMAIN.fullmatch(domain)):
        return f"{domain!r} is not a DNS subdomain of at most 63 characters"
    if not _IDENTIFIER.fullmatch(identifier):
        return f"{identifier!r} is not a C identifier of at most 32 characters"
    return None


def _bad_value(value: AttributeValue) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if value in INT64 else f"{value} does not fit 64 bits"
    text = str(value)
    if len(text.encode(errors="surrogatepass")) > VALUE_BYTES:
        return f"{text!r} is longer than {VALUE_BYTES} bytes"
    if not _encodable(text):
        return f"{text!r} is not UTF-8"
    if isinstance(value, Version) and not _SEMVER.fullmatch(text):
        return f"{text!r} is not a semantic version 2.0.0"
    return None


def _bad_taint(taint: Taint) -> str | None:
    prefix, slash, name = taint.key.rpartition("/")
    if (slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix))) or not _LABEL_PART.fullmatch(name):
        return "its key is not a label key"
    if taint.value and not _LABEL_PART.fullmatch(taint.value):
        return f"its value {taint.value!r} is not a label value"
    return None if taint.effect in _EFFECTS else f"its effect {taint.effect!r} is none of {', '.join(_EFFECTS)}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
