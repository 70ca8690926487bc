"""Kind `gpu`: names that say where a GPU is, and the proof that it answers, on a simulated machine."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.hardware.sim.codes import Code
from dra_driver.kinds.gpu import device_name, pci_of
from dra_driver.model.errors import DriverError, RetryLater
from dra_driver.model.gpu import PciAddress

from .conftest import Node, NoJournal

FIRST, SECOND = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
JOURNAL = NoJournal()

ADDRESSES = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0xFF), st.integers(0, 7)
)


@given(ADDRESSES)
def test_names_are_dns_labels_and_lead_back_to_the_address(pci: PciAddress) -> None:
    name = device_name(pci)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert pci_of(name) == pci


@given(ADDRESSES, ADDRESSES)
def test_two_addresses_have_two_names(one: PciAddress, other: PciAddress) -> None:
    assert (device_name(one) == device_name(other)) == (one == other)


@given(st.one_of(st.text(), st.text().map("gpu-{}".format), st.lists(st.text(max_size=4)).map("-".join)))
def test_other_names_are_refused(name: str) -> None:
    try:
        pci = pci_of(name)
    except ValueError:
        return
    assert name.startswith("gpu-")
    assert pci_of(device_name(pci)) == pci


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu",
        "gpu-0",
        "gpu-0000-1b-00-0-mig-1g10gb-19-0",
        "mig-0000-1b-00-0",
        "gpu-0000-1b-00-8",
        "gpu-0000-1b-00-0\n",
    ],
)
def test_names_of_other_kinds_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"gpu-0000-1b-00-0|0000:1b:00\.0"):
        pci_of(name)


def test_advertised_sorted_and_the_same_after_a_restart_of_the_driver(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    before = h100.devices()
    assert list(before) == sorted(before)
    assert [device.kind for device in before.values()] == ["gpu"] * 8
    h100.machine.unload_driver()
    assert h100.devices() == {}
    h100.machine.load_driver()
    assert h100.devices() == before


def test_a_gpu_in_mig_mode_is_not_advertised_as_a_whole(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    h100.machine.set_mig_mode(0, enabled=True)
    assert FIRST not in h100.devices()
    assert len(h100.devices()) == 7
    h100.machine.set_mig_mode(0, enabled=False)
    assert FIRST in h100.devices()


def test_acquire_changes_nothing_and_gives_the_same_again(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    device = h100.devices()[FIRST]
    state = h100.machine.state()
    live = h100.kind.acquire(device, JOURNAL)
    assert h100.kind.acquire(device, JOURNAL) == live
    assert h100.machine.state() == state
    assert (live.name, live.kind, live.uuid) == (FIRST, "gpu", device.attributes["uuid"])
    assert live.gpu_uuid == live.uuid
    assert h100.kind.find(FIRST, live.uuid) == live


@pytest.mark.parametrize("how", ["lose_gpu", "remove_gpu"])
def test_a_gpu_that_is_gone_is_not_acquired(node: Callable[[str], Node], how: str) -> None:
    h100 = node("dgx-h100")
    devices = h100.devices()
    live = h100.kind.acquire(devices[FIRST], JOURNAL)
    getattr(h100.machine, how)(0)
    with pytest.raises(RetryLater, match=rf"{FIRST}: the GPU at 0000:1b:00\.0 does not answer; look at `nvidia-smi`"):
        h100.kind.acquire(devices[FIRST], JOURNAL)
    assert h100.kind.find(FIRST, live.uuid) is None
    assert h100.kind.acquire(devices[SECOND], JOURNAL).name == SECOND, "the others are as before"
    h100.machine.insert_gpu(0) if how == "remove_gpu" else h100.machine.return_gpu(0)
    assert h100.kind.acquire(devices[FIRST], JOURNAL) == live


def test_mig_mode_turned_on_since_it_was_published(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    device = h100.devices()[FIRST]
    h100.machine.set_mig_mode(0, enabled=True)
    with pytest.raises(RetryLater, match=r"MIG mode of the GPU at 0000:1b:00\.0 was turned on .*`nvidia-smi -mig 0`"):
        h100.kind.acquire(device, JOURNAL)
    h100.machine.set_mig_mode(0, enabled=False)
    assert h100.kind.acquire(device, JOURNAL).name == FIRST


def test_another_gpu_in_the_same_slot_is_not_the_device_on_record(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    assert h100.kind.find(FIRST, str(h100.devices()[SECOND].attributes["uuid"])) is None


def test_an_unusable_driver_does_not_mean_that_the_gpu_is_gone(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    device = h100.devices()[FIRST]
    h100.machine.unload_driver()
    with pytest.raises(DriverError, match="driver"):
        h100.kind.acquire(device, JOURNAL)
    with pytest.raises(DriverError, match="driver"):
        h100.kind.find(FIRST, str(device.attributes["uuid"]))


def test_one_bad_gpu_does_not_hide_the_others(node: Callable[[str], Node]) -> None:
    h100 = node("dgx-h100")
    h100.machine.fail_call("nvmlDeviceGetUUID", Code.UNKNOWN, which=0)
    assert list(h100.devices()) == [name for name in sorted(node_names(h100)) if name != FIRST]


def node_names(h100: Node) -> list[str]:
    return [device_name(PciAddress.parse(gpu.pci)) for gpu in h100.machine.machine.gpus]


def test_edits_are_the_nodes_of_this_gpu_only(node: Callable[[str], Node]) -> None:
    mixed = node("l40s-a100")
    devices = mixed.devices()
    paths = {}
    for name, device in devices.items():
        edits = mixed.kind.edits(mixed.kind.acquire(device, JOURNAL))
        assert not edits.mounts
        assert not edits.env
        paths[name] = {entry.path for entry in edits.device_nodes}
    assert "/dev/nvidia2" in paths["gpu-0000-16-00-0"], "the node's number is NVML's minor, not the index"
    assert sum(map(len, paths.values())) == len(set.union(*paths.values())), "no node belongs to two GPUs"
