"""How a setting is read: by flag, environment variable, file or default, in this order, and all mistakes at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.model.errors import TellUser

_DNS = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")


@dataclass(frozen=True, slots=True)
class Row:
    """`parse` raises ValueError with a sentence; `also` are environment variables that people know from elsewhere."""

    name: str
    default: str
    meaning: str
    parse: Callable[[str], Any]
    unit: str = ""
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "DRA_DRIVER_" + self.name.upper()


def read(
    rows: Sequence[Row],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: Path | None,
    required: tuple[str, ...] = (),
    check: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: (),
    verb: str = "agent",
) -> dict[str, Any]:
    """The values of one table by row name. `check` says what is wrong with values that are right one by one. TellUser with
    every mistake."""
    mistakes: list[str] = []
    from_file, of_nodes = _read_file(file, rows, mistakes)
    node = next((_pick(row, flags, environment, from_file)[0] for row in rows if row.name == "node_name"), "")
    from_file = {**from_file, **of_nodes.get(node, {})}
    values: dict[str, Any] = {}
    for row in rows:
        value, where = _pick(row, flags, environment, from_file)
        try:
            values[row.name] = row.parse(value)
        except ValueError as why:
            mistakes.append(f"{where} {value!r}: {why}")
        if row.name in required and not value:
            mistakes.append(f"{row.flag} is required: {row.meaning} (or {' or '.join((row.env, *row.also))})")
    if not mistakes:
        mistakes += check(values)
    if mistakes:
        raise TellUser("reading the settings", "; ".join(mistakes), f"see `dra-driver {verb} --help`")
    return values


def _pick(
    row: Row, flags: Mapping[str, str | None], environment: Mapping[str, str], from_file: Mapping[str, str]
) -> tuple[str, str]:
    """The value and where it comes from, in words."""
    flag = flags.get(row.name)
    if flag is not None:
        return flag, row.flag
    for name in (row.env, *row.also):
        if name in environment:
            return environment[name], f"environment variable {name}"
    if row.name in from_file:
        return from_file[row.name], f"{row.name.replace('_', '-')} in the settings file"
    return row.default, row.flag


def _read_file(
    file: Path | None, rows: Sequence[Row], mistakes: list[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The settings of all nodes, and those of single ones by the node's name, which stand under `nodes:`."""
    if file is None:
        return {}, {}
    import yaml

    try:
        document = yaml.safe_load(file.read_bytes()) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        mistakes.append(f"settings file {file}: {' '.join(str(error).split())}")
        return {}, {}
    names = {row.name.replace("_", "-"): row.name for row in rows}
    where = f"settings file {file}"
    nodes = document.pop("nodes", {}) if isinstance(document, dict) and "node-name" in names else {}
    if not isinstance(nodes, dict):
        mistakes.append(f"{where}: nodes must be a mapping of node names to settings")
        nodes = {}
    of_nodes = {
        str(node): _plain(section, names, f"{where}: nodes.{node}", mistakes) for node, section in nodes.items()
    }
    return _plain(document, names, where, mistakes), of_nodes


def _plain(document: object, names: Mapping[str, str], where: str, mistakes: list[str]) -> dict[str, str]:
    if not isinstance(document, dict):
        mistakes.append(f"{where}: must be a mapping of setting names to values")
        return {}
    values: dict[str, str] = {}
    for key, value in document.items():
        if key not in names:
            mistakes.append(f"{where}: {key!r} is not a setting")
        elif isinstance(value, dict | list) or value is None:
            mistakes.append(f"{where}: {key} must be a plain value")
        else:
            # In YAML off is false, and so is no.
            values[names[key]] = str(value) if not isinstance(value, bool) else ("on" if value else "off")
    return values


def text(value: str) -> str:
    return value


def dns(value: str) -> str:
    if value and (len(value) > 253 or not _DNS.match(value)):
        raise ValueError("must be a lower-case DNS name like gpu.nvidia.com or worker-1")
    return value


def driver(value: str) -> str:
    if not value or len(value) > 63:
        raise ValueError("must have 1 to 63 characters (API limit of a driver name)")
    return dns(value)


def path(value: str) -> str:
    if value and not value.startswith("/"):
        raise ValueError("must be an absolute path")
    return value


def seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("must be a number of seconds") from None
        if not least <= number <= most:
            raise ValueError(f"must be {least:g} to {most:g} seconds")
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return parse


def address(value: str) -> str:
    _, separator, port = value.rpartition(":")
    if value != "off" and not (separator and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ValueError("must be ADDRESS:PORT, :PORT (all addresses of both families; port 0 for any free one) or off")
    return value
