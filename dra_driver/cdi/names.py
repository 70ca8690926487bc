"""CDI names: the grammar that readers enforce, and what our files and devices are called. Pure.

Source: tags.cncf.io/container-device-interface/pkg/parser; lengths from the CDI document (the parser does not check them).
"""

from __future__ import annotations

import re

CLASS = "claim"

_QUALIFIER = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def vendor(driver_name: str) -> str:
    """The CDI vendor of a driver: `k8s.gpu.nvidia.com` for `gpu.nvidia.com`, as NVIDIA's driver has it."""
    return f"k8s.{driver_name}"


def kind_problem(kind: str) -> str | None:
    """Why `vendor/class` is not a CDI kind, else None."""
    vendor_part, _, class_part = kind.partition("/")
    if not _QUALIFIER.fullmatch(vendor_part) or len(vendor_part) > 253:
        return f"{vendor_part!r} is not a CDI vendor: a letter first, then letters, digits, '_', '-', '.', at most 253"
    if not _QUALIFIER.fullmatch(class_part) or len(class_part) > 63:
        return f"{class_part!r} is not a CDI class: a letter first, then letters, digits, '_', '-', '.', at most 63"
    return None


def name_problem(name: str) -> str | None:
    """Why this is not a CDI device name, else None."""
    if _DEVICE.fullmatch(name):
        return None
    return f"{name!r} is not a CDI device name: letters, digits and between them also '_', '-', '.', ':'"


def device_name(uid: str, device: str, share_id: str | None) -> str:
    """`<claim UID>-<device>[-<share>]`: the same name in two files makes readers drop the device from both."""
    return f"{uid}-{device}" if share_id is None else f"{uid}-{device}-{share_id}"


def file_name(kind: str, uid: str) -> str:
    """`<vendor>-<class>_<claim UID>.json`, CDI's convention for specs that live as long as one claim. ValueError when the
    UID is not fit for a file name (letters, digits, '-', at most 63)."""
    if not _UID.fullmatch(uid):
        raise ValueError(f"{uid!r} is not a claim UID: letters, digits and between them '-', at most 63 characters")
    return f"{file_prefix(kind)}{uid}.json"


def file_prefix(kind: str) -> str:
    """What the names of all our files start with."""
    return kind.replace("/", "-") + "_"


def file_uid(kind: str, name: str) -> str | None:
    """The claim UID in the name of one of our files; None for everybody else's."""
    prefix = file_prefix(kind)
    if not name.startswith(prefix) or not name.endswith(".json"):
        return None
    uid = name[len(prefix) : -len(".json")]
    return uid if _UID.fullmatch(uid) else None
