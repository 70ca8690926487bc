"""The CDI specs of our claims as files: one per claim, replaced whole, nobody else's touched."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dra_driver import files
from dra_driver.cdi import names, spec
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.errors import DriverError, GiveUp, TellUser

SWEEP_OLDER_THAN_S = 60.0

_Signature = tuple[int, int, int]


class FileCdiStore:
    """Implements `ports.CdiStore` on a directory that the container runtime watches (`/var/run/cdi`).

    `vendor` is `names.vendor(driver name)`, `cls` the CDI class; files are `<vendor>-<class>_<claim UID>.json`, mode 0644.
    Nothing is synced to disk: a spec is of no use after the boot that it was written in. Errors: RetryLater and TellUser
    of `dra_driver.files`, TellUser for edits and names that CDI cannot say, GiveUp for a UID that is none.
    """

    def __init__(self, directory: str, vendor: str, cls: str = names.CLASS) -> None:
        self._directory = directory
        self._kind = f"{vendor}/{cls}"
        self._common: spec.Part | None = None
        self._left: dict[str, _Signature] = {}

    def write(self, uid: str, devices: Sequence[tuple[str, ContainerEdits]], common: ContainerEdits) -> None:
        """Renders and replaces the claim's spec, unless it says the same already. Every device name must start with
        `<uid>-`."""
        doing = f"writing the CDI spec of claim {uid}"
        path = self._path(uid, doing)
        for name, _ in devices:
            if not name.startswith(f"{uid}-"):
                raise GiveUp(doing, f"device {name!r} does not start with the claim's UID", "report this as a bug")
        try:
            text = spec.render(self._kind, devices, self._rendered(common))
        except spec.InvalidSpecError as error:
            raise TellUser(
                doing, str(error), "check the driver root, the driver name and the claim's sharing"
            ) from error
        data = text.encode()
        # Two instances of the agent would otherwise take each other's writing for somebody's meddling, for ever.
        if uid not in self._left or self._read(path, doing) != data:
            files.replace(path, data, doing, mode=0o644, directory_mode=0o755)
        if (signature := _signature(path)) is not None:
            self._left[uid] = signature

    def remove(self, uid: str) -> None:
        doing = f"removing the CDI spec of claim {uid}"
        self._left.pop(uid, None)
        files.remove(self._path(uid, doing), doing)

    def present(self, uid: str) -> bool:
        """True when the file can be read, parses, is of our kind, and has devices of this claim only. What it says about
        them is not compared with the machine."""
        doing = f"reading the CDI spec of claim {uid}"
        path = self._path(uid, doing)
        try:
            data = files.read(path, doing)
            found = None if data is None else json.loads(data)
        except (DriverError, ValueError, RecursionError):
            return False
        if not isinstance(found, dict) or found.get("kind") != self._kind or "cdiVersion" not in found:
            return False
        devices = found.get("devices")
        return isinstance(devices, list) and bool(devices) and all(_is_of_claim(device, uid) for device in devices)

    def specs(self) -> Mapping[str, bool]:
        """A file that this store did not write is taken as it is found first, if `present` says that it is whole."""
        found = {}
        for name in files.names(self._directory, "listing the CDI specs of this driver"):
            uid = names.file_uid(self._kind, name)
            signature = None if uid is None else _signature(f"{self._directory}/{name}")
            if uid is None or signature is None:
                continue
            if uid not in self._left and self.present(uid):
                self._left[uid] = signature
            found[uid] = self._left.get(uid) == signature
        for uid in self._left.keys() - found.keys():
            self._left.pop(uid, None)
        return found

    def qualified(self, uid: str, device: str, share_id: str | None) -> str:
        return f"{self._kind}={names.device_name(uid, device, share_id)}"

    def sweep(self) -> tuple[str, ...]:
        """Removes what a killed writer of ours left half-written; the paths. For the start of the agent."""
        doing = "sweeping temporary CDI files of this driver"
        prefix = names.file_prefix(self._kind)
        return files.sweep(self._directory, prefix, doing, older_than_s=SWEEP_OLDER_THAN_S)

    def _read(self, path: str, doing: str) -> bytes | None:
        with suppress(DriverError):  # whatever lies there, it is replaced
            return files.read(path, doing)
        return None

    def _path(self, uid: str, doing: str) -> str:
        try:
            return f"{self._directory}/{names.file_name(self._kind, uid)}"
        except ValueError as error:
            raise GiveUp(doing, str(error)) from error

    def _rendered(self, common: ContainerEdits) -> spec.Part:
        # About 70 mounts that stay the same until the driver installation changes: rendering them is most of a write.
        # One slot, replaced whole: two threads may render the same twice, none sees a mixture.
        kept = self._common
        if kept is None or (kept.edits is not common and kept.edits != common):
            self._common = kept = spec.part(common)
        return kept


def _signature(path: str) -> _Signature | None:
    """Inode, size and time of the last change to either: nobody can set that one back. None when there is no file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def _is_of_claim(device: object, uid: str) -> bool:
    name = device.get("name") if isinstance(device, dict) else None
    return isinstance(name, str) and name.startswith(f"{uid}-")
