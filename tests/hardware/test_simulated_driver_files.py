"""Driver files of every simulated machine, whose host root an installer could have made."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from simulated_host import SimulatedHost

from dra_driver.hardware.driver_files import NvidiaDriverFiles
from dra_driver.hardware.driver_root import find_driver_root

Machines = Callable[..., SimulatedHost]


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-b200", "gb200", "t4"])
def test_every_file_that_a_spec_names_exists_on_the_host(machines: Machines, name: str) -> None:
    host = machines(name)
    prefix = str(host.machine.root)
    root = find_driver_root(prefix=prefix)
    assert root.host == host.machine.machine.driver_root
    files = NvidiaDriverFiles(host.roots, host_root=prefix, locate=lambda: root)
    edits = files.common_edits()
    for gpu in host.hardware.inventory().gpus:
        edits += files.gpu_edits(gpu.pci, gpu.minor)
    for mount in edits.mounts:
        assert os.path.exists(prefix + mount.host_path), mount
        assert not mount.container_path.startswith("/run/nvidia/driver")
    for node in edits.device_nodes:
        assert os.path.exists(prefix + (node.host_path or node.path)), node
    wanted = {f"/dev/nvidia{gpu.minor}" for gpu in host.machine.machine.gpus} | {"/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert wanted <= {node.path for node in edits.device_nodes}
    assert {"/usr/bin/nvidia-smi"} <= {mount.container_path for mount in edits.mounts}
    version = host.machine.machine.driver_version
    assert any(mount.container_path.endswith(f"/libcuda.so.{version}") for mount in edits.mounts)


def test_a_simulated_machine_in_any_directory_serves_as_driver_root(machines: Machines) -> None:
    host = machines("dgx-h100")
    files = NvidiaDriverFiles(host.roots, host_driver_root=host.roots.driver)
    edits = files.common_edits()
    assert all(os.path.exists(mount.host_path) for mount in edits.mounts)
    assert all(os.path.exists(node.host_path or "") for node in edits.device_nodes)
