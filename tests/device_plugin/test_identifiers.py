"""What device plugins call GPUs."""

from __future__ import annotations

import pytest

from dra_driver.device_plugin.identifiers import by_uuid, uuid_of
from dra_driver.model.gpu import Gpu, PciAddress

ONE, TWO = "GPU-8a748984-0fe7-297f-916c-4b998ce202d1", "GPU-d05a2159-edb8-4d9a-82a0-e66b885cea7a"
MIG = "MIG-4f0e0d4c-36bf-5b7b-8d0b-3b1b5b0e4d57"


def gpu(uuid: str, index: int, minor: int) -> Gpu:
    pci = PciAddress(0, index, 0, 0)
    return Gpu(uuid, pci, index, minor, "NVIDIA L4", "Nvidia", "Ada Lovelace", (8, 9), 24 << 30, "580.1", (13, 0))


GPUS = (gpu(ONE, 0, 3), gpu(TWO, 1, 0))


@pytest.mark.parametrize(
    ("identifier", "uuid"),
    [
        (ONE, ONE),
        (f"{ONE}::7", ONE),
        (f"{ONE}-7", ONE),
        (MIG, MIG),
        (f"{MIG}::2", MIG),
        (f"MIG-{ONE}/1/0", f"MIG-{ONE}/1/0"),
        ("nvidia3", ONE),
        ("nvidia0", TWO),
        ("nvidia0/vgpu1", TWO),
        ("nvidia0/gi1", None),
        ("nvidia7", None),
        ("nvidia03x", None),
        ("0000:3b:00.0", None),
        ("GPU-", None),
        ("", None),
    ],
)
def test_identifiers_of_known_plugins(identifier: str, uuid: str | None) -> None:
    assert uuid_of(identifier, GPUS) == uuid


def test_resources_that_are_no_gpus_are_left_out_and_all_else_is_sorted() -> None:
    offered = {
        "nvidia.com/gpu.shared": [f"{ONE}::0", f"{ONE}::1"],
        "rdma/hca": ["mlx5_0"],
        "nvidia.com/mig-1g.10gb": [MIG],
        "example.com/renamed": [TWO],
        "nvidia.com/empty": [],
    }
    assert list(by_uuid(offered, GPUS).items()) == [
        ("example.com/renamed", {TWO}),
        ("nvidia.com/gpu.shared", {ONE}),
        ("nvidia.com/mig-1g.10gb", {MIG}),
    ]
