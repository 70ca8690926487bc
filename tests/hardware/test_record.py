"""A machine that was recorded is, simulated, the same machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from simulated_host import SimulatedHost

from dra_driver.hardware.record import machine_document
from dra_driver.model.errors import TellUser
from dra_driver.model.gpu import Gpu, Inventory

Machines = Callable[..., SimulatedHost]
ALL = ["dgx-a100", "dgx-b200", "dgx-h100", "dgx-h200", "gb200", "l40s-a100", "rtx-pro-server", "rtx-workstation", "t4"]


def played_back(machines: Machines, document: object, path: Path) -> Inventory:
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    inventory = machines(path).hardware.inventory()
    assert (inventory.driver_problem, inventory.problems) == (None, ())
    return inventory


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_machine_is_the_same_when_simulated(machines: Machines, name: str, tmp_path: Path) -> None:
    host = machines(name)
    seen = host.hardware.inventory()
    document = machine_document(seen, host.roots, scrub=False)
    host.hardware.stop()
    assert played_back(machines, document, tmp_path / "recorded.yaml") == seen


@pytest.mark.parametrize("name", ["gb200", "dgx-h100", "rtx-workstation"])
def test_scrubbed_it_is_the_same_but_for_what_identifies_the_hardware(
    machines: Machines, name: str, tmp_path: Path
) -> None:
    host = machines(name)
    seen = host.hardware.inventory()
    document = machine_document(seen, host.roots, scrub=True)
    text = yaml.safe_dump(document)
    for gpu in seen.gpus:
        for secret in (gpu.uuid, gpu.serial, gpu.fabric and gpu.fabric.cluster_uuid):
            assert not secret or set(secret) <= set("0-") or secret not in text
    host.hardware.stop()
    again = played_back(machines, document, tmp_path / "recorded.yaml")
    assert [anonymous(gpu) for gpu in again.gpus] == [anonymous(gpu) for gpu in seen.gpus]
    assert {gpu.uuid for gpu in again.gpus}.isdisjoint(gpu.uuid for gpu in seen.gpus)
    assert machine_document(seen, host.roots, scrub=True) == document, "the same fakes each time"


def anonymous(gpu: Gpu) -> Gpu:
    fabric = replace(gpu.fabric, cluster_uuid="") if gpu.fabric else None
    return replace(gpu, uuid="", serial=gpu.serial and "", fabric=fabric)


def test_equal_products_are_written_once(machines: Machines) -> None:
    host = machines("dgx-h100")
    text = yaml.safe_dump(machine_document(host.hardware.inventory(), host.roots, scrub=True))
    assert text.count("NVIDIA H100 80GB HBM3") == 2, "in the description and in one product"


def test_a_machine_without_gpus_or_driver_cannot_be_recorded(machines: Machines) -> None:
    host = machines("t4")
    host.machine.unload_driver()
    with pytest.raises(TellUser, match="modprobe nvidia"):
        machine_document(host.hardware.inventory(), host.roots, scrub=True)


def test_a_gpu_that_the_schema_cannot_say_is_told_by_name(machines: Machines) -> None:
    host = machines("t4")
    seen = host.hardware.inventory()
    odd = Inventory(gpus=(replace(seen.gpus[0], architecture="Volta"),))
    with pytest.raises(TellUser, match=r"Tesla T4.*Volta"):
        machine_document(odd, host.roots, scrub=True)
