"""Reading decoded JSON with the types that a record needs. Pure; ValueError with the path of what is wrong."""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T")


class Fields:
    """One JSON object. Unknown fields are ignored: a newer minor version may have written them."""

    __slots__ = ("_path", "_values")

    def __init__(self, values: dict[str, Any], path: str) -> None:
        self._values = values
        self._path = path

    @classmethod
    def of(cls, value: object, path: str) -> Fields:
        if not isinstance(value, dict):
            raise ValueError(f"{path} is not an object")  # noqa: TRY004  one error type for whatever the bytes hold
        return cls(value, path)

    def text(self, key: str) -> str:
        return self._need(key, self.optional_text(key))

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string")

    def flag(self, key: str) -> bool:
        """False when it is not there."""
        value = self._values.get(key, False)
        if isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false")

    def optional_number(self, key: str) -> int | None:
        value = self._values.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "a whole number")

    def texts(self, key: str) -> tuple[str, ...]:
        """Empty when it is not there."""
        value = self._values.get(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise self._wrong(key, "a list of strings")

    def text_map(self, key: str) -> dict[str, str]:
        """Empty when it is not there."""
        value = self._values.get(key, {})
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        raise self._wrong(key, "an object of strings")

    def object(self, key: str) -> Fields:
        return self._need(key, self.optional_object(key))

    def optional_object(self, key: str) -> Fields | None:
        value = self._values.get(key)
        return None if value is None else Fields.of(value, f"{self._path}.{key}")

    def objects(self, key: str) -> list[Fields]:
        """Empty when it is not there."""
        value = self._values.get(key, [])
        if isinstance(value, list):
            return [Fields.of(item, f"{self._path}.{key}[{index}]") for index, item in enumerate(value)]
        raise self._wrong(key, "a list")

    def _need(self, key: str, value: _T | None) -> _T:
        if value is None:
            raise ValueError(f"{self._path}.{key} is missing")
        return value

    def _wrong(self, key: str, expected: str) -> ValueError:
        return ValueError(f"{self._path}.{key} is not {expected}")
