"""The adapter above the real pynvml and a simulated library: what it reads, and how cheaply."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from simulated_host import SimulatedHost

from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots
from dra_driver.hardware.sim.codes import Code
from dra_driver.hardware.sim.library import SimulatedNvml
from dra_driver.model.gpu import Fabric, Inventory, MigPlacement, PciAddress

Machines = Callable[..., SimulatedHost]
ALL = [
    "dgx-a100",
    "dgx-b200",
    "dgx-h100",
    "dgx-h200",
    "gb200",
    "l40s-a100",
    "rtx-pro-server",
    "rtx-workstation",
    "t4",
]  # fmt: skip


def addresses(inventory: Inventory) -> list[str]:
    return [str(gpu.pci) for gpu in inventory.gpus]


@pytest.mark.parametrize("name", ALL)
def test_every_machine_is_read_without_a_problem_and_sorted_by_address(machines: Machines, name: str) -> None:
    host = machines(name)
    inventory = host.hardware.inventory()
    assert (inventory.driver_problem, inventory.problems) == (None, ())
    assert len(inventory.gpus) == len(host.machine.machine.gpus)
    assert addresses(inventory) == sorted(gpu.pci for gpu in host.machine.machine.gpus)
    assert [gpu.uuid for gpu in inventory.gpus] == [gpu.uuid for gpu in host.machine.machine.gpus]
    assert [gpu.minor for gpu in inventory.gpus] == [gpu.minor for gpu in host.machine.machine.gpus]
    assert {gpu.pcie_root for gpu in inventory.gpus} == {gpu.pcie_root for gpu in host.machine.machine.gpus}
    assert host.hardware.inventory() == inventory


def test_a_hopper_gpu_says_everything_that_is_published(machines: Machines) -> None:
    gpu = machines("dgx-h100").hardware.inventory().gpus[0]
    assert (gpu.product_name, gpu.brand, gpu.architecture) == ("NVIDIA H100 80GB HBM3", "Nvidia", "Hopper")
    assert (gpu.compute_capability, gpu.cuda_version, gpu.driver_version) == ((9, 0), (13, 0), "580.126.20")
    assert gpu.memory_bytes == 85520809984
    assert (gpu.numa_node, gpu.pcie_root, gpu.nvlinks, gpu.module_id) == (0, "pci0000:15", 18, 2)
    assert (gpu.ecc_enabled, gpu.addressing_mode, gpu.multiprocessors) == (True, "None", 132)
    assert gpu.pci_device_id == 0x233010DE
    assert gpu.fabric == Fabric("completed", "00000000-0000-0000-0000-000000000000", 0)
    assert gpu.mig is not None
    assert [profile.name for profile in gpu.mig.profiles] == [
        "1g.10gb",
        "1g.10gb+me",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
    ]
    assert gpu.mig.profiles[4].placements == (MigPlacement(0, 4), MigPlacement(4, 4))


def test_what_a_workstation_card_lacks_is_none(machines: Machines) -> None:
    gpu = machines("rtx-workstation").hardware.inventory().gpus[0]
    assert gpu.brand == "GeForce"
    assert [gpu.serial, gpu.ecc_enabled, gpu.numa_node, gpu.nvlinks, gpu.fabric, gpu.mig, gpu.multiprocessors] == [
        None
    ] * 7


def test_an_old_driver_without_newer_functions_is_read_by_the_older_ones(machines: Machines) -> None:
    new = machines("dgx-h100").hardware.inventory().gpus[0]
    old = machines(
        "dgx-h100",
        without=(
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlSystemGetCudaDriverVersion_v2",
            "nvmlDeviceGetGpuInstanceProfileInfoV",
            "nvmlDeviceGetAddressingMode",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetModuleId",
        ),
    ).hardware.inventory()
    gpu = old.gpus[0]
    assert old.problems == ()
    assert (gpu.memory_bytes, gpu.cuda_version, gpu.fabric) == (new.memory_bytes, new.cuda_version, new.fabric)
    assert (gpu.addressing_mode, gpu.module_id) == (None, None)
    assert gpu.mig == new.mig, "the names of profiles follow NVIDIA's rule where the driver does not state them"


def test_a_driver_that_refuses_newer_structures_is_asked_in_older_ones(machines: Machines) -> None:
    host = machines("dgx-h100")
    expected = host.hardware.inventory().gpus
    for call in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuFabricInfoV"):
        host.machine.fail_call(call, Code.ARGUMENT_VERSION_MISMATCH)
    again = NvmlHardware(host.roots, nvml_library=host.library)
    assert again.inventory().gpus == expected
    again.stop()


def test_memory_that_is_not_stated_is_none(machines: Machines) -> None:
    host = machines("gb200")
    host.machine.fail_call("nvmlDeviceGetMemoryInfo_v2", Code.NOT_SUPPORTED)
    assert {gpu.memory_bytes for gpu in host.hardware.inventory().gpus} == {None}


def test_a_fact_that_fails_oddly_is_left_out_and_asked_again_next_time(machines: Machines) -> None:
    host = machines("t4")
    host.machine.fail_call("nvmlDeviceGetSerial", Code.UNKNOWN, which=1, times=1)
    assert [gpu.serial is None for gpu in host.hardware.inventory().gpus] == [False, True, False, False]
    assert [gpu.serial is None for gpu in host.hardware.inventory().gpus] == [False] * 4


def test_a_gpu_at_another_address_is_not_there(machines: Machines) -> None:
    hardware = machines("t4").hardware
    assert hardware.gpu("0000:ff:00.0") is None
    assert hardware.gpu("nonsense") is None


def test_a_prepare_needs_few_calls(machines: Machines) -> None:
    host = machines("dgx-h100")
    gpu = host.hardware.inventory().gpus[5]
    host.library.calls.clear()
    assert host.hardware.gpu(str(gpu.pci)) is gpu
    assert len(host.library.calls) <= 4


def test_a_rescan_reads_only_what_can_change(machines: Machines) -> None:
    host = machines("dgx-h100")
    full = host.hardware.inventory()
    host.library.calls.clear()
    again = host.hardware.inventory()
    assert all(new is old for new, old in zip(again.gpus, full.gpus, strict=True))
    assert len(host.library.calls) <= 8 * 7 + 1


def test_stopping_shuts_nvml_down_and_a_later_inventory_starts_it_again(machines: Machines) -> None:
    host = machines("t4")
    host.hardware.start()
    host.hardware.stop()
    assert host.library.calls.count("nvmlShutdown") == host.library.calls.count("nvmlInitWithFlags") == 1
    assert len(host.hardware.inventory().gpus) == 4


def test_many_threads_get_the_same_answers(machines: Machines) -> None:
    host = machines("t4")
    full = host.hardware.inventory()
    wrong: list[object] = []

    def look() -> None:
        for _ in range(20):
            if host.hardware.inventory() != full:
                wrong.append("inventory")
            for gpu in full.gpus:
                if host.hardware.gpu(str(gpu.pci)) != gpu:
                    wrong.append(gpu.pci)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_constructing_touches_nothing(tmp_path: object) -> None:
    threads = threading.active_count()
    NvmlHardware(HostRoots(driver="/nowhere"), nvml_library=SimulatedNvml("/nowhere"))
    assert threading.active_count() == threads


def test_addresses_sort_as_numbers() -> None:
    assert PciAddress.parse("00000000:1B:00.0") < PciAddress.parse("0008:01:00.0")
