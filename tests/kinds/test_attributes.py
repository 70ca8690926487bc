"""The attribute table: values that the API takes, and nothing published that is not known."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.hardware.sim.product_files import known_boards
from dra_driver.kinds.attributes import GPU_ATTRIBUTES, MAX_STRING_BYTES, semantic_version
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.device import Version
from dra_driver.model.gpu import Fabric, Gpu, Inventory, Mig, MigProfile, PciAddress

SEMVER = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")

PLAIN = Gpu(
    uuid="GPU-1",
    pci=PciAddress.parse("0000:1b:00.0"),
    index=0,
    minor=0,
    product_name="NVIDIA Test",
    brand="Nvidia",
    architecture="Hopper",
    compute_capability=(9, 0),
    memory_bytes=None,
    driver_version="580.65.06",
    cuda_version=(13, 0),
)


def published(gpu: Gpu) -> dict[str, object]:
    kind = GpuKind(None, None)  # type: ignore[arg-type] - advertising asks nobody
    (device,) = kind.advertise(Inventory((gpu,)))
    return {**device.attributes, **{f"capacity {name}": amount for name, amount in device.capacity.items()}}


def with_mig(*names: str, enabled: bool = False) -> Gpu:
    profiles = tuple(MigProfile(0, name, 1, 1, 1, 1, 1, 1, 1, 1, 1, ()) for name in names)
    return dataclasses.replace(PLAIN, mig=Mig(enabled=enabled, pending=enabled, profiles=profiles))


@pytest.mark.parametrize(
    ("stated", "version"),
    [
        ("580.65.06", "580.65.6"),
        ("570.124.06", "570.124.6"),
        ("535.309.01", "535.309.1"),
        ("470.00.00", "470.0.0"),
        ("580", "580.0.0"),
        ("580.126", "580.126.0"),
        ("580.126.20.1", "580.126.20"),
        ("580.126.20-open", "580.126.20"),
        ("7.5", "7.5.0"),
    ],
)
def test_driver_versions_become_semantic_versions(stated: str, version: str) -> None:
    assert semantic_version(stated) == Version(version)


@given(st.text())
def test_whatever_a_driver_calls_itself_is_a_semantic_version_or_not_published(text: str) -> None:
    found = semantic_version(text)
    assert found is None or SEMVER.fullmatch(found.text)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_leading_zeros_change_nothing_but_the_text(numbers: list[int], zeros: list[int]) -> None:
    padded = ".".join("0" * count + str(number) for number, count in zip(numbers, zeros, strict=False))
    wanted = [*numbers, 0, 0][:3]
    assert semantic_version(padded) == Version(".".join(map(str, wanted)))


def test_what_is_not_known_is_not_published() -> None:
    found = published(PLAIN)
    absent = {"addressingMode", "nvlinkClique", "capacity memory"}
    absent |= {"resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"}
    assert not absent & set(found)
    assert None not in found.values()
    assert set(found) == {row.name for row in GPU_ATTRIBUTES} - absent


def test_zero_and_false_are_known() -> None:
    gpu = dataclasses.replace(PLAIN, numa_node=0, nvlinks=0, ecc_enabled=False, memory_bytes=0)
    found = published(gpu)
    assert found["resource.kubernetes.io/numaNode"] == 0
    assert found["nvlinks"] == 0
    assert found["eccEnabled"] is False
    assert found["capacity memory"] == 0


def test_names_are_those_that_existing_manifests_use() -> None:
    standard = {row.name for row in GPU_ATTRIBUTES if not row.ours}
    assert standard == {
        *("type", "uuid", "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion"),
        *("cudaDriverVersion", "addressingMode"),
        *("resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"),
    }


def test_the_table_says_what_each_attribute_means_once() -> None:
    names = [row.name for row in GPU_ATTRIBUTES]
    assert len(names) == len(set(names))
    assert all(row.meaning for row in GPU_ATTRIBUTES)


def test_a_gpu_without_mig_says_so() -> None:
    found = published(PLAIN)
    assert (found["migCapable"], found["migEnabled"], found["migProfiles"]) == (False, False, "")


def test_mig_profiles_are_sorted_and_each_named_once() -> None:
    found = published(with_mig("7g.80gb", "1g.10gb", "1g.10gb+me", "1g.10gb"))
    assert found["migProfiles"] == "1g.10gb,1g.10gb+me,7g.80gb"
    assert found["migProfiles2"] == ""


PROFILE = st.builds(
    "{}g.{}gb{}".format, st.integers(1, 8), st.integers(5, 288), st.sampled_from(["", "+me", "+gfx", "-me", "+me.all"])
)


@given(st.sets(PROFILE, max_size=14))
def test_mig_profiles_are_split_where_64_bytes_are_full(names: set[str]) -> None:
    found = published(with_mig(*names))
    parts = [str(found[name]) for name in ("migProfiles", "migProfiles2") if found[name]]
    assert all(len(part.encode()) <= MAX_STRING_BYTES for part in parts)
    listed = [name for part in parts if part for name in part.split(",")]
    assert listed == sorted(names)[: len(listed)], "in order, none cut in two"
    if len(",".join(names)) <= 2 * MAX_STRING_BYTES - len("8g.288gb+me.all"):
        assert len(listed) == len(names), "what fits is there"
    if len(parts) == 2:
        assert len(f"{parts[0]},{parts[1].split(',')[0]}") > MAX_STRING_BYTES, "the first is full before the second"


@pytest.mark.parametrize("board", known_boards())
def test_all_profiles_of_every_known_gpu_fit(board: str) -> None:
    names = {profile.name for profile in known_boards()[board].profiles}
    found = published(with_mig(*names))
    listed = ",".join(str(found[name]) for name in ("migProfiles", "migProfiles2") if found[name])
    assert set(listed.split(",")) == names, "the rest is not published: add a row migProfiles3"


@pytest.mark.parametrize(
    ("fabric", "clique"),
    [
        (None, None),
        (Fabric("completed", "00000000-0000-0000-0000-000000000000", 0), None),
        (Fabric("completed", "", 0), None),
        (
            Fabric("completed", "8c2f4b1d-53a0-4e64-9a34-0b9e2f6a7d11", 7),
            "8c2f4b1d-53a0-4e64-9a34-0b9e2f6a7d11.7",
        ),
    ],
)
def test_clique_only_where_nvlink_leaves_the_machine(fabric: Fabric | None, clique: str | None) -> None:
    assert published(dataclasses.replace(PLAIN, fabric=fabric)).get("nvlinkClique") == clique
