"""What every machine publishes holds to the API's rules, and is the same whoever asks and however often."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import V1ResourceSlice

from dra_driver.hardware.sim.product_files import known_products
from dra_driver.hardware.sim.simulation import SimulatedMachine
from dra_driver.kinds.attributes import GPU_ATTRIBUTES
from tests.golden.produce import MACHINES, OPTIONAL, devices, settings, slices

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
IDENTIFIER = re.compile(r"(resource\.kubernetes\.io/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
QUANTITY = re.compile(r"[1-9]\d*(Ki|Mi|Gi|Ti)?")


@pytest.fixture(scope="session")
def every_product(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A machine with one GPU of each known product: the most mixed node there can be."""
    products = known_products()
    machine = {
        "name": "every-product",
        "arch": "x86_64",
        "driver": {"version": "580.126.20", "nvml": "13.580.126.20", "cuda": 13000},
        "gpus": [
            {"product": product, "pci": f"0000:{bus:02x}:00.0", "pcie_root": f"pci0000:{bus - 1:02x}"}
            for bus, product in enumerate(products, start=0x10)
        ],
    }
    path = tmp_path_factory.mktemp("machines") / "every-product.yaml"
    path.write_text(yaml.safe_dump(machine))
    return str(path)


@pytest.fixture(params=[*MACHINES, "every product"])
def machine(request: pytest.FixtureRequest, every_product: str) -> str:
    return every_product if request.param == "every product" else str(request.param)


def test_slices_are_what_the_typed_model_of_the_api_accepts(machine: str) -> None:
    for item in slices(machine):
        typed = V1ResourceSlice.from_dict(item)
        assert typed is not None
        assert typed.model_dump(by_alias=True, exclude_none=True) == item, (
            "a field that the API does not know, or one of another type"
        )


def test_envelope(machine: str) -> None:
    found = slices(machine)
    name = settings(machine).node_name
    for index, item in enumerate(found):
        assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
        assert item["metadata"] == {"generateName": f"{index:05x}-gpu.nvidia.com-{name}-"}
        assert item["spec"]["driver"] == "gpu.nvidia.com"
        assert item["spec"]["nodeName"] == name
        assert item["spec"]["pool"] == {"name": name, "generation": 1, "resourceSliceCount": len(found)}


def test_devices_keep_the_limits_of_the_api(machine: str) -> None:
    found = [device for item in slices(machine) for device in item["spec"]["devices"]]
    names = [device["name"] for device in found]
    assert names == sorted(set(names)), "sorted, and each name once in the pool"
    for device in found:
        assert LABEL.fullmatch(device["name"])
        assert len(device["attributes"]) + len(device["capacity"]) <= 32
        for name, value in device["attributes"].items():
            assert IDENTIFIER.fullmatch(name), name
            ((kind, content),) = value.items()
            assert kind in ("string", "version", "int", "bool")
            assert len(str(content).encode()) <= 64, f"{name}: {content}"
            assert kind != "version" or SEMVER.fullmatch(content), f"{name}: {content}"
        for value in device["capacity"].values():
            assert QUANTITY.fullmatch(value["value"]), value


def test_all_gpus_of_a_machine_have_the_same_attributes_of_the_same_types(machine: str) -> None:
    shapes = [{name: next(iter(value)) for name, value in device.items()} for device in devices(machine).values()]
    types = {(name, kind) for shape in shapes for name, kind in shape.items()}
    assert len(types) == len(dict(types)), "an attribute has two types"
    differing = {name for name, _ in types if not all(name in shape for shape in shapes)}
    assert differing <= OPTIONAL, "expressions over these would fail on a mixed node: publish them for every GPU"


def test_attributes_that_are_not_optional_are_on_every_machine() -> None:
    always = {row.name for row in GPU_ATTRIBUTES} - OPTIONAL
    for name in MACHINES:
        for device, attributes in devices(name).items():
            lacking = always - set(attributes)
            assert not lacking, (
                f"{device} of {name} lacks {lacking}: publish them for every GPU, or add them to OPTIONAL"
            )


def test_uuids_are_different_on_two_nodes_and_the_same_each_time() -> None:
    def uuids(node: str) -> set[str]:
        return {str(device["uuid"]["string"]) for device in _published(node_name=node).values()}

    assert uuids("node-a") == uuids("node-a")
    assert not uuids("node-a") & uuids("node-b")


def test_the_same_after_restart_reboot_and_re_enumeration_and_under_any_hash_seed(tmp_path: Path) -> None:
    directory = str(tmp_path / "machine")
    before = _printed(directory, "1")
    assert _printed(directory, "2") == before, "after a restart"
    there = SimulatedMachine.open(directory)
    there.reboot()
    assert _printed(directory, "3") == before, "after a reboot"
    there.remove_gpu(0)  # the others get other indices
    found = yaml.safe_load(_printed(directory, "4"))["spec"]["devices"]
    assert found == yaml.safe_load(before)["spec"]["devices"][1:]
    there.insert_gpu(0)
    assert _printed(directory, "5") == before, "after it was plugged in again"


def _printed(directory: str, seed: str) -> str:
    command = [sys.executable, "-m", "dra_driver.cli.main", "devices", "--machine=l40s-a100", "--output=yaml"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [*command, f"--simulation-dir={directory}"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def _published(**more: str) -> Mapping[str, Mapping[str, Any]]:
    command = [sys.executable, "-m", "dra_driver.cli.main", "devices", "--machine=t4", "--output=yaml"]
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return {device["name"]: device["attributes"] for device in yaml.safe_load(done.stdout)["spec"]["devices"]}
