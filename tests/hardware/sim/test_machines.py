"""Machines as data: those that come with the package, and files that somebody else wrote."""

from pathlib import Path

import pytest

from dra_driver.hardware.sim.errors import SimulationError
from dra_driver.hardware.sim.facts import machine_from_json
from dra_driver.hardware.sim.machine_files import list_machines, load_machine
from dra_driver.hardware.sim.product_files import known_boards, known_products

NAMES = [summary.name for summary in list_machines()]

RECORDED = """
name: recorded
arch: x86_64
driver: {version: "580.1.2", nvml: "13.580.1.2", cuda: 13000}
gpus:
  - pci: "0000:02:00.0"
    pcie_root: "pci0000:00"
    uuid: GPU-11111111-2222-3333-4444-555555555555
    product:
      name: "NVIDIA Unheard Of"
      architecture: blackwell
      compute_capability: "12.1"
      memory_mib: 1000
      pci_device_id: 0x123410DE
      mig_board: own
  - {pci: "0000:01:00.0", pcie_root: "pci0000:00", product: l40s, minor: 5}
mig_boards:
  own:
    compute_slices: 1
    memory_slices: 1
    max_devices: 1
    profiles:
      - {name: 1g.1gb, id: 7, enum: 0, slices: 1, memory: 900, sm: 4, max: 1,
         ce: 1, dec: 0, enc: 0, jpeg: 0, ofa: 0, size: 1, starts: [0]}
"""


def test_the_machines_of_the_package_are_listed_by_name() -> None:
    assert sorted(NAMES) == NAMES
    assert {
        "dgx-a100",
        "dgx-h100",
        "dgx-h200",
        "dgx-b200",
        "gb200",
        "l40s-a100",
        "t4",
        "rtx-workstation",
    } <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_enumerates_through_pynvml_as_its_file_says(name: str, make, attach) -> None:
    machine = make(name)
    nvml = attach(machine)
    facts = machine.machine.gpus
    assert nvml.nvmlDeviceGetCount() == len(facts)
    for index, gpu in enumerate(facts):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        assert nvml.nvmlDeviceGetName(handle) == gpu.product.name
        assert nvml.nvmlDeviceGetUUID(handle) == gpu.uuid
        assert nvml.nvmlDeviceGetMinorNumber(handle) == gpu.minor
        assert nvml.nvmlDeviceGetPciInfo(handle).busId == gpu.bus_id
        assert nvml.nvmlDeviceGetMemoryInfo(handle).total == gpu.product.memory_bytes
        assert nvml.nvmlDeviceGetIndex(handle) == index


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_survives_its_json_form(name: str) -> None:
    machine = load_machine(name, seed="node-1")
    assert machine_from_json(machine.to_json()) == machine


def test_products_and_boards_agree() -> None:
    used = {product.mig_board for product in known_products().values()} - {None}
    assert used <= set(known_boards())
    for board in known_boards().values():
        for profile in board.profiles:
            assert max(profile.starts) + profile.size <= board.memory_slices
            for need, there in zip(profile.engines, board.whole.engines, strict=True):
                assert need * profile.max <= there


def test_two_nodes_of_one_machine_have_different_identities_and_each_keeps_its_own() -> None:
    one, again, two = (load_machine("t4", seed=seed) for seed in ("node-1", "node-1", "node-2"))
    assert [gpu.uuid for gpu in one.gpus] == [gpu.uuid for gpu in again.gpus]
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in two.gpus}
    assert not {gpu.serial for gpu in one.gpus} & {gpu.serial for gpu in two.gpus}


def test_minor_numbers_differ_from_indices_somewhere() -> None:
    assert [gpu.minor for gpu in load_machine("t4").gpus] != [0, 1, 2, 3]


def test_an_unknown_machine_is_refused_with_the_known_names() -> None:
    with pytest.raises(SimulationError, match=r"'dgx-z900'.*known are dgx-a100, .*t4"):
        load_machine("dgx-z900")


def test_a_recorded_machine_may_bring_its_own_product_and_mig_board(tmp_path: Path, make, attach) -> None:
    path = tmp_path / "recorded.yaml"
    path.write_text(RECORDED)
    machine = make(path)
    nvml = attach(machine)
    assert [gpu.pci for gpu in machine.machine.gpus] == ["0000:01:00.0", "0000:02:00.0"]  # NVML's order
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA Unheard Of"
    assert nvml.nvmlDeviceGetUUID(handle) == "GPU-11111111-2222-3333-4444-555555555555"
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0).name == "MIG 1g.1gb"
    assert nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(0)) == 5


def test_every_mistake_in_a_machine_file_is_reported_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("""
name: broken
arch: sparc
driver: {version: 580, nvml: "x"}
colour: green
gpus:
  - {product: gtx-9000, pci: "1:2", pcie_root: "pci0000:00"}
  - {product: t4, pci: "0000:01:00.0", numa_node: far}
fabric: {state: woven, cluster_uuid: "00000000-0000-0000-0000-000000000000", clique_id: 0}
""")
    with pytest.raises(SimulationError) as caught:
        load_machine(path)
    message = str(caught.value)
    assert str(path) in message
    for expected in (
        "arch: 'sparc'",
        "driver.version: must be a text",
        "driver.cuda: is required",
        "colour: is not a known key",
        "gpus[0].product: 'gtx-9000'",
        "gpus[0].pci: '1:2'",
        "gpus[1].numa_node: must be a whole number",
        "gpus[1].pcie_root: is required",
        "fabric.state: 'woven'",
    ):
        assert expected in message


def test_two_gpus_in_one_slot_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "double.yaml"
    path.write_text(RECORDED.replace("0000:02:00.0", "0000:01:00.0"))
    with pytest.raises(SimulationError, match=r"pci 0000:01:00\.0 is given to more than one GPU"):
        load_machine(path)


def test_making_a_machine_again_keeps_its_state(make) -> None:
    make("t4").lose_gpu(0)
    again = make("t4")
    assert again.state()["gpus"]["0000:3b:00.0"]["lost"]


def test_a_directory_of_another_machine_is_refused(make) -> None:
    make("t4", seed="node-1")
    with pytest.raises(SimulationError, match="already holds t4"):
        make("dgx-h100")
    with pytest.raises(SimulationError, match=r"already holds t4 \(seed 'node-1'\)"):
        make("t4", seed="node-2")
    assert make("t4").machine.seed == "node-1"
