"""Reads `products.yaml` and `mig.yaml`, and products and boards written inline in a machine file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import (
    ADDRESSING_MODES,
    ARCHITECTURES,
    BRANDS,
    MigBoard,
    MigProfile,
    Product,
)
from dra_driver.hardware.sim.fields import Fields

HERE: Final = Path(__file__).resolve().parent


def yaml_document(path: Path) -> Any:
    """The one place that needs PyYAML; it is imported only when a machine is made."""
    import yaml

    try:
        return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SimulationError(f"reading {path}: {error}; give a readable YAML file") from error


def refuse(path: Path, mistakes: list[str]) -> None:
    if mistakes:
        lines = "\n  ".join(mistakes)
        raise SimulationError(f"reading {path}: {len(mistakes)} mistake(s):\n  {lines}\ncorrect them and try again")


@lru_cache(maxsize=1)
def known_products() -> dict[str, Product]:
    path = HERE / "products.yaml"
    mistakes: list[str] = []
    rows = yaml_document(path)["products"]
    products = {key: product(Fields(row, f"products.{key}", mistakes)) for key, row in rows.items()}
    refuse(path, mistakes)
    return products


@lru_cache(maxsize=1)
def known_boards() -> dict[str, MigBoard]:
    path = HERE / "mig.yaml"
    mistakes: list[str] = []
    found = boards(yaml_document(path)["boards"], "boards", mistakes)
    refuse(path, mistakes)
    return found


def product(row: Fields) -> Product:
    """One product; the keys are explained at the head of `products.yaml`."""
    nvlink = row.inner("nvlink") if "nvlink" in row else None
    found = Product(
        name=row.text("name"),
        architecture=row.choice("architecture", tuple(ARCHITECTURES)),
        brand=row.choice("brand", tuple(BRANDS), "nvidia"),
        compute_capability=row.text("compute_capability"),
        memory_mib=row.integer("memory_mib", least=1),
        reserved_mib=row.integer("reserved_mib", 0),
        multiprocessors=row.integer("multiprocessors", 0),
        cores=row.integer("cores", 0),
        power_limit_w=row.integer("power_limit_w", 0),
        pci_device_id=row.integer("pci_device_id"),
        pci_subsystem_id=row.integer("pci_subsystem_id", 0),
        memory_bus_bits=row.optional_integer("memory_bus_bits"),
        ecc=row.flag("ecc", True),
        serial=row.flag("serial", True),
        nvlink_version=nvlink.integer("version") if nvlink else 0,
        nvlink_links=nvlink.integer("links") if nvlink else 0,
        c2c=row.flag("c2c", False),
        addressing_mode=row.choice("addressing_mode", tuple(ADDRESSING_MODES), "none"),
        mig_board=row.optional_text("mig_board"),
    )
    row.take("confidence")
    if nvlink:
        nvlink.end()
    major, _, minor = found.compute_capability.partition(".")
    if found.compute_capability and not (major.isdigit() and minor.isdigit()):
        row.wrong("compute_capability", f'{found.compute_capability!r} does not look like "9.0"')
    row.end()
    return found


def boards(rows: object, path: str, mistakes: list[str]) -> dict[str, MigBoard]:
    table = Fields(rows, path, mistakes)
    keys = list(rows) if isinstance(rows, dict) else []
    return {str(key): _board(table.inner(str(key))) for key in keys}


def _board(row: Fields) -> MigBoard:
    found = MigBoard(
        compute_slices=row.integer("compute_slices", least=1),
        memory_slices=row.integer("memory_slices", least=1),
        max_devices=row.integer("max_devices", least=1),
        reset_to_enable=row.flag("reset_to_enable", False),
        profiles=tuple(_profile(profile) for profile in row.inner_rows("profiles")),
    )
    if not found.profiles:
        row.wrong("profiles", "must name at least one profile")
    row.take("title")
    row.take("estimated")
    row.end()
    return found


def _profile(row: Fields) -> MigProfile:
    numbers = ("id", "enum", "slices", "memory", "sm", "max", "ce", "dec", "enc", "jpeg", "ofa", "size")
    values = {key: row.integer(key) for key in numbers}
    found = MigProfile(name=row.text("name"), starts=row.integers("starts"), **values)
    row.end()
    return found
