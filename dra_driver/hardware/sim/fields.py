"""Reads one mapping of a data file and notes every mistake with its path, instead of stopping at the first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PCIE_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


class Fields:
    """A mapping at `path`. Each reader takes its key out; `end` reports the keys nobody asked for.

    A wrong or missing value is noted in `mistakes` and a harmless stand-in is returned, so that reading goes on.
    """

    def __init__(self, value: object, path: str, mistakes: list[str]) -> None:
        self.path = path
        self.mistakes = mistakes
        self._left: dict[str, Any] = {}
        if isinstance(value, Mapping):
            self._left = {str(k): v for k, v in value.items()}
        else:
            mistakes.append(f"{path or 'file'}: must be a mapping, not {_kind(value)}")

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, why: str) -> None:
        self.mistakes.append(f"{self.at(key)}: {why}")

    def take(self, key: str) -> Any:
        return self._left.pop(key, None)

    def peek(self, key: str) -> Any:
        return self._left.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self._left and default is not None:
            return default
        value = self._left.pop(key, None)
        if isinstance(value, str) and value:
            return value
        self.wrong(key, "is required" if value is None else f"must be a text, not {_kind(value)}: quote it")
        return ""

    def choice(self, key: str, known: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value and value not in known:
            self.wrong(key, f"{value!r} is not one of {', '.join(known)}")
        return value

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        if key not in self._left and default is not None:
            return default
        value = self._left.pop(key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        why = "is required" if value is None else f"must be a whole number of at least {least}, not {value!r}"
        self.wrong(key, why)
        return least

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if self._left.get(key) is not None else None

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self._left.get(key) is not None else None

    def flag(self, key: str, default: bool) -> bool:
        value = self._left.pop(key, default)
        if not isinstance(value, bool):
            self.wrong(key, f"must be true or false, not {value!r}")
            return default
        return value

    def matching(self, key: str, pattern: re.Pattern[str], example: str) -> str:
        value = self.text(key)
        if value and not pattern.fullmatch(value):
            self.wrong(key, f"{value!r} does not look like {example}")
        return value

    def texts(self, key: str, pattern: re.Pattern[str], example: str) -> tuple[str, ...]:
        values = self.rows(key)
        for index, value in enumerate(values):
            if not isinstance(value, str) or not pattern.fullmatch(value):
                self.wrong(f"{key}[{index}]", f"{value!r} does not look like {example}")
        return tuple(str(value) for value in values)

    def integers(self, key: str) -> tuple[int, ...]:
        values = self.rows(key)
        if not all(isinstance(v, int) for v in values):
            self.wrong(key, f"must be a list of whole numbers, not {values!r}")
            return ()
        return tuple(values)

    def rows(self, key: str) -> list[Any]:
        value = self._left.pop(key, None)
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong(key, f"must be a list, not {_kind(value)}")
            return []
        return value

    def inner(self, key: str) -> Fields:
        return Fields(self._left.pop(key, None), self.at(key), self.mistakes)

    def inner_rows(self, key: str) -> Iterator[Fields]:
        for index, row in enumerate(self.rows(key)):
            yield Fields(row, f"{self.at(key)}[{index}]", self.mistakes)

    def end(self) -> None:
        for key in sorted(self._left):
            self.mistakes.append(f"{self.at(key)}: is not a known key")


def _kind(value: object) -> str:
    names = {type(None): "nothing", str: "a text", list: "a list", dict: "a mapping", bool: "true or false"}
    return names.get(type(value), "a number")
