"""What the kernel tells of a GPU, from a directory in its shape."""

from __future__ import annotations

import pytest
from fake_host import FakeHost

from dra_driver.hardware import sysfs
from dra_driver.model.errors import TellUser
from dra_driver.model.gpu import PciAddress

PCI = PciAddress.parse("0000:1b:00.0")


def gpu(host: FakeHost, numa: str) -> FakeHost:
    real = "devices/pci0000:15/0000:15:01.0/0000:1b:00.0"
    host.write(f"/sys/{real}/numa_node", content=numa.encode())
    return host.link("/sys/bus/pci/devices/0000:1b:00.0", f"../../../{real}")


def test_the_pcie_root_is_the_first_part_of_the_real_path(host: FakeHost) -> None:
    assert sysfs.pcie_root(gpu(host, "0\n").roots(), PCI) == "pci0000:15"


def test_a_gpu_that_sysfs_does_not_know_has_no_place(host: FakeHost) -> None:
    roots = host.roots()
    assert (sysfs.pcie_root(roots, PCI), sysfs.numa_node(roots, PCI), sysfs.dri_nodes(roots, PCI)) == (None, None, ())


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0", 0), ("-1\n", None), ("", None)])
def test_numa_node_minus_one_is_none(host: FakeHost, text: str, node: int | None) -> None:
    assert sysfs.numa_node(gpu(host, text).roots(), PCI) == node


def test_dri_nodes_are_cards_and_render_nodes_not_connectors(host: FakeHost) -> None:
    gpu(host, "0")
    for name in ("renderD128", "card1", "card1-HDMI-A-1", "version"):
        host.write(f"/sys/devices/pci0000:15/0000:15:01.0/0000:1b:00.0/drm/{name}/dev")
    assert sysfs.dri_nodes(host.roots(), PCI) == ("card1", "renderD128")


def test_the_boot_id_is_read_from_proc_and_its_absence_is_told(host: FakeHost) -> None:
    with pytest.raises(TellUser, match="boot_id"):
        sysfs.boot_id(host.roots())
    host.write("/proc/sys/kernel/random/boot_id", content=b"3d1c4b5e-0000-4000-8000-000000000000\n")
    assert sysfs.boot_id(host.roots()) == "3d1c4b5e-0000-4000-8000-000000000000"
