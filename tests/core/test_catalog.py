"""What is published of GPUs that are there, and of those that were lost while a claim holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dra_driver.core.catalog import Catalog
from dra_driver.kinds.gpu import GpuKind, device_name
from dra_driver.model.device import Device, Taint
from dra_driver.model.gpu import Gpu, Inventory, PciAddress
from dra_driver.state.advertised import AdvertisedFile
from dra_driver.telemetry.metrics import Metrics

DRIVER = "gpu.nvidia.com"
LOST = Taint(f"{DRIVER}/gpu-lost", "lost", "NoSchedule")
TAKEN = Taint(f"{DRIVER}/device-plugin", "taken", "NoSchedule")


def gpu(bus: int) -> Gpu:
    pci = PciAddress(0, bus, 0, 0)
    return Gpu(f"GPU-{bus}", pci, bus, bus, "NVIDIA L4", "Nvidia", "Ada Lovelace", (8, 9), 24 << 30, "580.1.2", (13, 0))


class Slots:
    """Implements `ports.Hardware`: GPUs that tests pull out and put in."""

    def __init__(self, *buses: int) -> None:
        self.gpus = {bus: gpu(bus) for bus in buses}

    def inventory(self) -> Inventory:
        return Inventory(tuple(self.gpus.values()))

    def gpu(self, pci: str) -> Gpu | None:
        return next((one for one in self.gpus.values() if str(one.pci) == pci), None)

    def look_ahead(self) -> None:
        """Every answer is as good as one of a moment ago."""


class Others:
    """Implements `ports.Neighbours`: UUIDs that tests give away."""

    def __init__(self) -> None:
        self.given: set[str] = set()

    def look(self, inventory: Inventory) -> Mapping[str, str]:
        return dict.fromkeys(self.given, "was given to pod ml/train")

    def holders(self, inventory: Inventory) -> Mapping[str, str]:
        return self.look(inventory)


class NoFiles:
    """Implements `ports.DriverFiles`; advertising needs none."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "advertised.json"


def catalog(slots: Slots, path: Path, held: set[str], others: Others | None = None) -> Catalog:
    kinds = (GpuKind(slots, NoFiles()),)  # type: ignore[arg-type]
    metrics = Metrics("test", DRIVER)
    advertised = AdvertisedFile(str(path))
    return Catalog(slots, kinds, held.__contains__, metrics, others or Others(), DRIVER, advertised)


def published(one: Catalog) -> dict[str, Device]:
    return {device.name: device for device in one.refresh()}


def test_a_lost_gpu_stays_published_with_a_taint_until_its_claim_releases_it(path: Path) -> None:
    slots, lost = Slots(1, 2), device_name(gpu(1).pci)
    held = {lost}
    one = catalog(slots, path, held)
    before = published(one)
    del slots.gpus[1]
    now = published(one)
    assert (now[lost].taints, now[lost].attributes) == ((LOST,), before[lost].attributes)
    assert set(one.present) == {device_name(gpu(2).pci)}
    held.clear()
    assert lost not in published(one)


def test_a_gpu_that_nobody_holds_goes_when_it_is_lost_and_comes_back_as_it_was(path: Path) -> None:
    slots = Slots(1, 2)
    one = catalog(slots, path, set())
    before = published(one)
    del slots.gpus[1]
    assert len(published(one)) == 1
    slots.gpus[1] = gpu(1)
    assert published(one) == before


def test_a_gpu_lost_while_no_agent_ran_is_described_as_before_so_that_no_selector_fails_on_it(path: Path) -> None:
    lost = device_name(gpu(1).pci)
    before = published(catalog(Slots(1, 2), path, {lost}))
    now = published(catalog(Slots(2), path, {lost}))
    assert now[lost].taints == (LOST,)
    assert (now[lost].attributes, now[lost].capacity) == (before[lost].attributes, before[lost].capacity)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b'{"schema":2}', b'{"schema":1,"devices":[{}]}', b"\xff"]
)
def test_what_was_advertised_may_be_unreadable_and_is_written_anew(path: Path, damage: bytes) -> None:
    lost = device_name(gpu(1).pci)
    published(catalog(Slots(1, 2), path, {lost}))
    path.write_bytes(damage)
    assert lost not in published(catalog(Slots(2), path, {lost}))
    assert AdvertisedFile(str(path)).recall()


def test_a_gpu_that_others_gave_away_is_published_with_a_taint_for_as_long(path: Path) -> None:
    others, given = Others(), device_name(gpu(1).pci)
    one = catalog(Slots(1, 2), path, set(), others)
    before = published(one)
    others.given = {"GPU-1", "GPU-7"}
    now = published(one)
    assert (now[given].taints, now[device_name(gpu(2).pci)].taints) == ((TAKEN,), ())
    assert given in one.present
    others.given = set()
    assert published(one) == before


def test_a_lost_gpu_that_others_gave_away_has_both_taints(path: Path) -> None:
    slots, others, lost = Slots(1, 2), Others(), device_name(gpu(1).pci)
    one = catalog(slots, path, {lost}, others)
    published(one)
    others.given = {"GPU-1"}
    del slots.gpus[1]
    assert published(one)[lost].taints == (LOST, TAKEN)
    assert published(one)[lost].taints == (LOST, TAKEN), "they do not add up"
