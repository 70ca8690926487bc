"""Which claim UIDs and device names may become file names. They come from outside. Pure."""

from __future__ import annotations

import re

from dra_driver.model.errors import GiveUp

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# Devices are DNS labels; locks are also taken on PCI addresses (0000:1b:00.0).
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,126}")


def is_uid(uid: str) -> bool:
    return _UID.fullmatch(uid) is not None


def is_device(device: str) -> bool:
    return _DEVICE.fullmatch(device) is not None


def check_uid(uid: str, doing: str) -> None:
    """GiveUp unless the UID is letters, digits and between them '-', at most 63 characters."""
    if not is_uid(uid):
        raise GiveUp(doing, f"{uid!r} is not a claim UID, and no file is named after it", "report who sent it")


def check_device(device: str, doing: str) -> None:
    """GiveUp unless the name is letters, digits and after the first also '.', ':', '_', '-', at most 127 characters."""
    if not is_device(device):
        raise GiveUp(doing, f"{device!r} is not a device name, and no file is named after it", "report who sent it")
