"""Two small directories beside the records: who holds which device, and the records that were set aside."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dra_driver import files
from dra_driver.state.names import is_device, is_uid


class HolderIndex:
    """`<directory>/<device>/<uid>`, empty files. An entry is a hint to look at the claim's record, never the truth."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def add(self, device: str, uid: str, doing: str) -> None:
        path = f"{self._directory}/{device}/{uid}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                fd = os.open(path, flags, 0o600)
            except FileNotFoundError:
                os.makedirs(f"{self._directory}/{device}", mode=0o700, exist_ok=True)
                fd = os.open(path, flags, 0o600)
            os.close(fd)
        except OSError as error:
            raise files.refused(doing, path, error) from error

    def remove(self, device: str, uid: str, doing: str) -> None:
        files.remove(f"{self._directory}/{device}/{uid}", doing)

    def uids(self, device: str, doing: str) -> Sequence[str]:
        return [name for name in files.names(f"{self._directory}/{device}", doing) if is_uid(name)]

    def devices(self, doing: str) -> Sequence[str]:
        return [name for name in files.names(self._directory, doing) if is_device(name)]


class SetAside:
    """`<directory>/<uid>.<n>`: damaged records that block the devices they held until their claim is rebuilt or dropped.
    Then they are renamed to `<uid>.<n>.settled` and kept to be looked at, the newest `KEEP` of them."""

    KEEP = 32

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def take(self, path: str, uid: str, doing: str) -> None:
        """Moves the file here; no success needed when it has gone meanwhile."""
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            os.rename(path, self._free_path(uid, doing))
        except FileNotFoundError:
            return
        except OSError as error:
            raise files.refused(doing, path, error) from error

    def open(self, uid: str, doing: str) -> None:
        """An empty file in the place of a record that is not there to be moved."""
        path = self._free_path(uid, doing)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise files.refused(doing, path, error) from error

    def _free_path(self, uid: str, doing: str) -> str:
        taken = {name.removesuffix(".settled") for name in files.names(self._directory, doing)}
        number = next(n for n in range(1, len(taken) + 2) if f"{uid}.{n}" not in taken)
        return f"{self._directory}/{uid}.{number}"

    def open_cases(self, doing: str) -> dict[str, list[str]]:
        """UID -> paths of what is set aside and not settled, in the order in which it was set aside."""
        cases: dict[str, list[tuple[int, str]]] = {}
        for name in files.names(self._directory, doing):
            uid, _, number = name.partition(".")
            if number.isdecimal() and is_uid(uid):
                cases.setdefault(uid, []).append((int(number), f"{self._directory}/{name}"))
        return {uid: [path for _, path in sorted(numbered)] for uid, numbered in cases.items()}

    def settle(self, uid: str, doing: str) -> bool:
        """True when there was something to settle."""
        paths = self.open_cases(doing).get(uid, [])
        for path in paths:
            try:
                os.rename(path, f"{path}.settled")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise files.refused(doing, path, error) from error
        return bool(paths)

    def prune(self, doing: str) -> None:
        """Removes settled ones beyond the newest `KEEP`."""
        settled = [f"{self._directory}/{name}" for name in files.names(self._directory, doing) if ".settled" in name]
        for path in sorted(settled, key=_modified, reverse=True)[self.KEEP :]:
            files.remove(path, doing)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
