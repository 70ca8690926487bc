"""What the golden files hold, made by the code that an agent and `dra-driver devices` run."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dra_driver.cdi.names import vendor
from dra_driver.cdi.store import FileCdiStore
from dra_driver.cli.devices import resource_slices
from dra_driver.cli.looking import looked_at, node_name
from dra_driver.core.catalog import advertised
from dra_driver.hardware.sim.machine_files import list_machines
from dra_driver.hardware.sysfs import machine_product, pci_class
from dra_driver.host import kinds
from dra_driver.kinds.gpu import GpuKind
from dra_driver.model.record import Effect
from dra_driver.node_labels.table import Machine, labels
from dra_driver.settings import Settings, load

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
SPEC = f"k8s.gpu.nvidia.com-claim_{UID}.json"
MACHINES = tuple(machine.name for machine in list_machines())

# Not published where the GPU, its driver or its machine has no such thing. In CEL a missing attribute is an error, and an
# error on one device keeps the pod from being scheduled at all: expressions over these have to be guarded (docs/attributes.md).
OPTIONAL = {
    "addressingMode",
    "nvlinkClique",
    "resource.kubernetes.io/numaNode",
    "resource.kubernetes.io/pcieRoot",
}


def settings(machine: str, **more: str) -> Settings:
    wanted = load({"machine": machine, **more}, environment={})
    return load({"machine": machine, **more, "node_name": node_name(wanted)}, environment={})


def slices(machine: str) -> list[dict[str, Any]]:
    """The ResourceSlices of a simulated machine, by name or machine file; made once, copied for each caller."""
    return copy.deepcopy(_slices(machine))


@cache
def _slices(machine: str) -> list[dict[str, Any]]:
    chosen = settings(machine)
    with looked_at(chosen) as (host, inventory):
        devices = tuple(advertised(kinds(host), inventory).values())
    return resource_slices(chosen, devices)


def devices(machine: str) -> dict[str, dict[str, Any]]:
    """What is published of each device, flat: attribute -> typed value; capacities under `capacity NAME`."""
    flat = {}
    for item in slices(machine):
        for device in item["spec"]["devices"]:
            capacity = {f"capacity {name}": value for name, value in device.pop("capacity").items()}
            flat[device.pop("name")] = {**device.pop("attributes"), **capacity}
            assert not device, f"the golden files do not show {', '.join(device)} of a device yet"
    return flat


def devices_yaml() -> str:
    """All machines; what all devices of a machine have in common is written once."""
    text = "# What the simulated machines publish. Rewrite with: python -m tests.golden.rewrite\n"
    for machine in MACHINES:
        found = devices(machine)
        first = next(iter(found.values()))
        common = {
            key: value for key, value in first.items() if all(device.get(key) == value for device in found.values())
        }
        rows = {"every device": common} | {
            name: {key: value for key, value in device.items() if key not in common} for name, device in found.items()
        }
        text += "\n" + yaml.safe_dump({machine: rows}, sort_keys=False, default_flow_style=None, width=200)
    return text


def labels_yaml() -> str:
    """The labels of each machine's Node; they are those of gpu-feature-discovery."""
    text = "# The labels that node-labels gives the simulated machines. Rewrite with: python -m tests.golden.rewrite\n"
    for machine in MACHINES:
        with looked_at(settings(machine)) as (host, inventory):
            first = min(inventory.gpus, key=lambda gpu: gpu.index)
            kernel = Machine(machine_product(host.roots), pci_class(host.roots, first.pci))
            text += "\n" + yaml.safe_dump({machine: labels(inventory.gpus, kernel)}, sort_keys=False)
    return text


class NoJournal:
    def intend(self, effect: Effect) -> None:
        raise AssertionError(f"a full GPU is prepared without any effect, not {effect}")


def claim_spec() -> str:
    """The CDI spec of one claim with two GPUs of a DGX H100; `/SIMULATED` stands for where the simulated machine lies."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for tool in ("bin/sh", "sbin/ldconfig"):  # the host's, so that the spec does not depend on this machine's
            (place / "host" / tool).parent.mkdir(parents=True)
            (place / "host" / tool).write_bytes(b"\x7fELF")
            (place / "host" / tool).chmod(0o755)
        chosen = settings("dgx-h100", simulation_dir=f"{directory}/simulation", host_root=f"{directory}/host")
        with looked_at(chosen) as (host, inventory):
            kind = GpuKind(host.hardware, host.files)
            first_two = kind.advertise(inventory)[:2]
            store = FileCdiStore(f"{directory}/cdi", vendor(chosen.driver_name))
            named = [(store.qualified(UID, device.name, None).partition("=")[2], device) for device in first_two]
            edits = [(name, kind.edits(kind.acquire(device, NoJournal()))) for name, device in named]
            store.write(UID, edits, host.files.common_edits())
        return (place / "cdi" / SPEC).read_text().replace(f"{directory}/simulation", "/SIMULATED")


# By path from the root of the repository.
FILES: Mapping[str, Callable[[], str]] = {
    "tests/golden/devices.yaml": devices_yaml,
    "tests/golden/labels.yaml": labels_yaml,
    "tests/golden/claim.cdi.json": claim_spec,
}
