"""Finding and loading libnvidia-ml under the driver root."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from dra_driver.hardware.driver_root import LIBRARY_DIRECTORIES, below, find_library
from dra_driver.hardware.nvml_failure import LIBRARY_NOT_FOUND, NvmlFailure

_NAME = "libnvidia-ml.so.1"


class NvmlLibrary:
    """The library below a driver root that is looked up at each load. Loads again when another driver version has been installed there.

    The file is loaded under its full name with the version (`libnvidia-ml.so.580.65.06`): the loader gives back the
    mapped old one for a name that it knows, and the version mismatch after an upgrade would last until a restart.
    """

    def __init__(self, driver_root: Callable[[], str]) -> None:
        self._driver_root = driver_root
        self._loaded: tuple[str, object] | None = None

    def load(self) -> object:
        """NvmlFailure LIBRARY_NOT_FOUND saying where it looked, or why the file cannot be loaded. TellUser from the look-up of the
        root."""
        root = self._driver_root()
        found = find_library(root, _NAME)
        if found is not None:
            path = below(root, found)
        elif root == "/":
            path = _NAME  # wherever the loader finds it: LD_LIBRARY_PATH, ld.so.cache
        else:
            raise NvmlFailure(LIBRARY_NOT_FOUND, f"looking for {_NAME}", f"not under {root} in {_places()}")
        if self._loaded is None or self._loaded[0] != path:
            try:
                self._loaded = path, ctypes.CDLL(path)
            except OSError as error:
                where = f"in {_places()} of / and in the loader's path: " if found is None else ""
                raise NvmlFailure(LIBRARY_NOT_FOUND, f"loading {path}", f"{where}{error}") from error
        return self._loaded[1]


def _places() -> str:
    return ", ".join(directory or "." for directory in LIBRARY_DIRECTORIES)
