"""What labels say of machines that no simulated one is; those are in tests/golden/labels.yaml."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.gpu import Fabric, Gpu, Mig, PciAddress
from dra_driver.node_labels.table import Machine, family, label_value, labels

H100 = "NVIDIA H100 80GB HBM3"


def gpu(index: int, product: str = H100, **more: object) -> Gpu:
    pci = PciAddress(0, index, 0, 0)
    one = Gpu(f"GPU-{index}", pci, index, index, product, "Nvidia", "Hopper", (9, 0), 81559 << 20, "580.95.05", (13, 0))
    return dataclasses.replace(one, **more)  # type: ignore[arg-type]


def said(*gpus: Gpu, machine: Machine | None = None) -> dict[str, str]:
    return {name.removeprefix("nvidia.com/"): value for name, value in labels(gpus, machine or Machine()).items()}


def test_without_gpus_there_are_no_labels() -> None:
    assert labels((), Machine("DGXH100")) == {}


def test_of_several_products_the_most_frequent_is_told_and_counted() -> None:
    mixed = said(gpu(0, "NVIDIA L40S"), gpu(1), gpu(2), gpu(3, "NVIDIA L40S"), gpu(4))
    assert (mixed["gpu.product"], mixed["gpu.count"]) == ("NVIDIA-H100-80GB-HBM3", "3")
    assert said(gpu(0, "B"), gpu(1, "A"))["gpu.product"] == "A", "the same on every look"


def test_gpus_in_mig_mode_are_counted_but_given_to_nobody_as_a_whole() -> None:
    mig = gpu(0, mig=Mig(enabled=True, pending=True, profiles=()))
    assert (said(mig)["gpu.count"], said(mig)["gpu.replicas"], said(mig)["mig.capable"]) == ("1", "0", "true")
    both = said(mig, gpu(1))
    assert (both["gpu.count"], both["gpu.replicas"]) == ("2", "1")


def test_what_a_machine_does_not_say_is_left_out_or_unknown() -> None:
    bare = said(gpu(0, memory_bytes=None, driver_version="580.95"))
    assert "gpu.memory" not in bare
    assert "cuda.driver-version.revision" not in bare
    assert "gpu.clique" not in bare
    assert (bare["gpu.machine"], bare["gpu.mode"]) == ("unknown", "unknown")
    told = said(gpu(0), machine=Machine("Standard PC (Q35 + ICH9, 2009)", "0x030000"))
    assert (told["gpu.machine"], told["gpu.mode"]) == ("Standard-PC-Q35-ICH9-2009", "graphics")


def test_the_clique_is_told_where_all_gpus_are_in_the_same() -> None:
    def of(clique: int) -> Gpu:
        return gpu(clique, fabric=Fabric("completed", "1af37c2e-0000-4000-8000-000000000001", clique))

    assert said(of(7), of(7))["gpu.clique"] == "1af37c2e-0000-4000-8000-000000000001.7"
    assert "gpu.clique" not in said(of(7), of(8))
    assert "gpu.clique" not in said(of(7), gpu(1))


@pytest.mark.parametrize(
    ("version", "name"),
    [((12, 0), "blackwell"), ((8, 9), "ada-lovelace"), ((8, 6), "ampere"), ((7, 2), "volta"), ((2, 0), "undefined")],
)
def test_families(version: tuple[int, int], name: str) -> None:
    assert family(*version) == name


@given(st.text(max_size=200))
def test_values_are_always_what_kubernetes_takes(text: str) -> None:
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", label_value(text))
    assert len(label_value(text)) <= 63
