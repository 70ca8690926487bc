"""What a container gets of the driver, in the layouts that exist, and when it is found anew."""

from __future__ import annotations

import logging
import os
import shutil

import pytest
from fake_host import VERSION, FakeHost, make_gpu

from dra_driver.hardware.driver_files import NvidiaDriverFiles
from dra_driver.hardware.driver_root import find_driver_root
from dra_driver.hardware.roots import HostRoots
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.errors import TellUser

LIB = "/usr/lib/x86_64-linux-gnu"
ELF = b"\x7fELF...."


def files(host: FakeHost, **settings: str) -> NvidiaDriverFiles:
    return NvidiaDriverFiles(host.roots(), host_root=host.root, look_every_s=0, **settings)


def mounted(edits: ContainerEdits) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in edits.mounts}


def with_ldconfig(host: FakeHost) -> FakeHost:
    return host.write("/sbin/ldconfig", "/bin/sh", content=ELF)


def test_a_driver_on_the_host_goes_to_the_same_paths(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0")
    edits = files(host).common_edits()
    paths = mounted(edits)
    for path in (
        f"{LIB}/libcuda.so.{VERSION}",
        f"{LIB}/libnvidia-egl-gbm.so.1.1.2",
        f"{LIB}/vdpau/libvdpau_nvidia.so.{VERSION}",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-cuda-mps-control",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    ):
        assert paths[path] == path
    assert not [path for path in paths if "libc.so" in path or "unrelated" in path or "readme" in path]
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
    assert all(node.host_path is None for node in edits.device_nodes)
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits.env
    assert list(paths) == sorted(paths)


def test_the_operators_driver_root_is_cut_from_container_paths_and_kept_on_the_host(host: FakeHost) -> None:
    with_ldconfig(host)
    driver = FakeHost(host.path / "run/nvidia/driver").driver("/usr/lib64").nodes("nvidiactl", "nvidia0")
    locate = lambda: find_driver_root(prefix=host.root)  # noqa: E731
    edits = NvidiaDriverFiles(host.roots(), host_root=host.root, look_every_s=0, locate=locate)
    common = edits.common_edits()
    assert mounted(common)[f"/usr/lib64/libcuda.so.{VERSION}"] == f"/run/nvidia/driver/usr/lib64/libcuda.so.{VERSION}"
    assert common.device_nodes == (DeviceNode("/dev/nvidiactl", host_path="/run/nvidia/driver/dev/nvidiactl"),)
    assert edits.gpu_edits(make_gpu().pci, 0).device_nodes == (
        DeviceNode("/dev/nvidia0", host_path="/run/nvidia/driver/dev/nvidia0"),
    )
    assert driver.root not in str(common)


def test_the_gke_layout_has_lib64_and_bin_right_below_its_root(host: FakeHost) -> None:
    with_ldconfig(host).nodes("nvidiactl")
    root = "/home/kubernetes/bin/nvidia"
    FakeHost(host.path / root.lstrip("/")).driver("/lib64", binaries="/bin")
    edits = NvidiaDriverFiles(
        host.roots(), host_root=host.root, look_every_s=0, locate=lambda: find_driver_root(prefix=host.root)
    )
    paths = mounted(edits.common_edits())
    assert paths[f"/lib64/libcuda.so.{VERSION}"] == f"{root}/lib64/libcuda.so.{VERSION}"
    assert paths["/bin/nvidia-smi"] == f"{root}/bin/nvidia-smi"
    assert edits.common_edits().device_nodes == (DeviceNode("/dev/nvidiactl"),)


def test_a_library_behind_absolute_links_is_mounted_under_its_real_name(host: FakeHost) -> None:
    current = f"{LIB}/nvidia/current"
    with_ldconfig(host).driver(current)
    host.link("/etc/alternatives/glx--libcuda.so.1", f"{current}/libcuda.so.{VERSION}")
    host.link(f"{LIB}/libcuda.so.1", "/etc/alternatives/glx--libcuda.so.1")
    assert mounted(files(host).common_edits())[f"{current}/libcuda.so.{VERSION}"] == f"{current}/libcuda.so.{VERSION}"


def test_files_of_an_older_driver_that_were_left_behind_are_not_taken(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).write(f"{LIB}/libcuda.so.999.99.99", f"{LIB}/libnvidia-tls.so.470.1.1")
    paths = mounted(files(host).common_edits())
    assert not [path for path in paths if "999" in path or "470" in path]


def test_configuration_goes_to_its_fixed_place_and_sockets_stay_writable(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB)
    host.write("/etc/vulkan/icd.d/nvidia_icd.json", "/etc/glvnd/egl_vendor.d/10_nvidia.json")
    host.write("/run/nvidia-persistenced/socket").link("/var/run", "../run")
    edits = files(host).common_edits()
    paths = mounted(edits)
    assert paths["/etc/vulkan/icd.d/nvidia_icd.json"] == "/etc/vulkan/icd.d/nvidia_icd.json"
    assert paths["/usr/share/glvnd/egl_vendor.d/10_nvidia.json"] == "/etc/glvnd/egl_vendor.d/10_nvidia.json"
    socket = next(mount for mount in edits.mounts if mount.container_path == "/run/nvidia-persistenced/socket")
    assert "ro" not in socket.options
    assert "noexec" in socket.options


def test_firmware_is_found_where_the_kernel_was_told_to_look(host: FakeHost) -> None:
    with_ldconfig(host)
    driver = FakeHost(host.path / "run/nvidia/driver").driver("/usr/lib64")
    shutil.rmtree(driver.path / "lib/firmware")
    driver.write(f"/opt/firmware/nvidia/{VERSION}/gsp_tu10x.bin")
    host.write("/sys/module/firmware_class/parameters/path", content=b"/run/nvidia/driver/opt/firmware\n")
    edits = NvidiaDriverFiles(
        host.roots(), host_root=host.root, look_every_s=0, locate=lambda: find_driver_root(prefix=host.root)
    )
    path = f"/opt/firmware/nvidia/{VERSION}/gsp_tu10x.bin"
    assert mounted(edits.common_edits())[path] == "/run/nvidia/driver" + path


def test_without_a_driver_the_user_is_told_where_it_was_looked_for(host: FakeHost) -> None:
    (host.path / "usr/lib64").mkdir(parents=True)
    with pytest.raises(TellUser, match="/usr/lib64"):
        files(host).common_edits()


def test_dri_nodes_come_with_the_gpu_when_they_exist(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidia3", "dri/card1", "dri/renderD128")
    for name in ("card1", "renderD128", "card1-DP-1", "renderD129"):
        host.write(f"/sys/bus/pci/devices/0000:1b:00.0/drm/{name}/dev")
    edits = files(host).gpu_edits(make_gpu().pci, 3)
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidia3", "/dev/dri/card1", "/dev/dri/renderD128"]
    assert edits.hooks == ()


def test_an_unchanged_installation_is_not_searched_again(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidiactl")
    found = files(host)
    first = found.common_edits()
    assert found.common_edits() is first


def test_dri_nodes_that_come_later_are_found(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidia3", "nvidiactl")
    found = files(host)
    found.common_edits()
    assert [node.path for node in found.gpu_edits(make_gpu().pci, 3).device_nodes] == ["/dev/nvidia3"]
    host.write("/sys/bus/pci/devices/0000:1b:00.0/drm/card1/dev")
    host.nodes("dri/card1")
    found.common_edits()
    assert [node.path for node in found.gpu_edits(make_gpu().pci, 3).device_nodes] == ["/dev/nvidia3", "/dev/dri/card1"]


def test_an_upgraded_driver_is_found_anew(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB)
    found = files(host)
    assert f"{LIB}/libcuda.so.{VERSION}" in mounted(found.common_edits())
    shutil.rmtree(host.path / LIB.lstrip("/"))
    host.driver(LIB, version="590.48.01")
    paths = mounted(found.common_edits())
    assert f"{LIB}/libcuda.so.590.48.01" in paths
    assert f"{LIB}/libcuda.so.{VERSION}" not in paths


def test_a_removed_driver_is_not_served_from_memory(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB)
    found = files(host)
    found.common_edits()
    shutil.rmtree(host.path / LIB.lstrip("/"))
    with pytest.raises(TellUser):
        found.common_edits()
    with pytest.raises(TellUser):
        found.gpu_edits(make_gpu().pci, 0)


def test_a_control_node_that_appears_later_is_added(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidiactl")
    found = files(host)
    assert len(found.common_edits().device_nodes) == 1
    host.nodes("nvidia-uvm")
    assert [node.path for node in found.common_edits().device_nodes] == ["/dev/nvidia-uvm", "/dev/nvidiactl"]


def test_nvidias_hook_is_used_with_the_commands_that_its_release_knows(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB)
    known = b"\x7fELF create-symlinks update-ldcache enable-cuda-compat chmod"
    host.write("/usr/bin/nvidia-cdi-hook", content=known)
    edits = files(host).common_edits()
    assert [hook.args[1] for hook in edits.hooks] == ["create-symlinks", "enable-cuda-compat", "update-ldcache"]
    assert all(hook.path == "/usr/bin/nvidia-cdi-hook" and hook.args[0] == "nvidia-cdi-hook" for hook in edits.hooks)
    links, compat, cache = (hook.args[2:] for hook in edits.hooks)
    assert f"libcuda.so.1::{LIB}/libcuda.so" in links
    assert f"libcuda.so.{VERSION}::{LIB}/libcuda.so.1" in links
    assert compat == (f"--host-driver-version={VERSION}",)
    assert cache == ("--folder", LIB)
    assert f"NVIDIA_CTK_LIBCUDA_DIR={LIB}" in edits.env
    assert f"{LIB}/libcuda.so" not in mounted(edits), "create-symlinks fails where the name exists"


def test_nvidias_hook_makes_the_by_path_links_of_a_gpu(host: FakeHost) -> None:
    host.driver(LIB).nodes("dri/card1").write("/sys/bus/pci/devices/0000:1b:00.0/drm/card1/dev")
    host.write("/usr/bin/nvidia-cdi-hook", content=b"\x7fELF create-symlinks update-ldcache")
    (hook,) = files(host).gpu_edits(make_gpu().pci, 0).hooks
    assert hook.args[1:] == ("create-symlinks", "--link", "../card1::/dev/dri/by-path/pci-0000:1b:00.0-card")


def test_the_operators_wrapper_script_stands_for_the_program_beside_it(host: FakeHost) -> None:
    path = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    host.driver(LIB).write(path, content=b"#!/bin/sh\n")
    host.write(path + ".real", content=b"\x7fELF create-symlinks update-ldcache disable-device-node-modification")
    hooks = files(host).common_edits().hooks
    assert {hook.path for hook in hooks} == {path}
    assert "disable-device-node-modification" in {hook.args[1] for hook in hooks}


def test_an_older_toolkit_has_its_hooks_in_nvidia_ctk(host: FakeHost) -> None:
    host.driver(LIB).write("/usr/bin/nvidia-ctk", content=b"\x7fELF create-symlinks update-ldcache")
    hooks = files(host).common_edits().hooks
    assert [hook.args[:3] for hook in hooks] == [
        ("nvidia-ctk", "hook", "create-symlinks"),
        ("nvidia-ctk", "hook", "update-ldcache"),
    ]


def test_a_hook_that_was_set_but_is_not_there_is_told(host: FakeHost) -> None:
    host.driver(LIB)
    with pytest.raises(TellUser, match="/opt/nvidia-cdi-hook"):
        files(host, cdi_hook="/opt/nvidia-cdi-hook").common_edits()


def test_the_hosts_ldconfig_is_the_program_and_not_ubuntus_script(host: FakeHost) -> None:
    host.driver(LIB).write("/sbin/ldconfig", content=b"#!/bin/sh\n").write(
        "/sbin/ldconfig.real", "/bin/sh", content=ELF
    )
    edits = files(host).common_edits()
    (hook,) = edits.hooks
    assert (hook.name, hook.path, hook.args[:2]) == ("createContainer", "/bin/sh", ("sh", "-c"))
    assert hook.args[4:] == (
        "/sbin/ldconfig.real",
        LIB,
        f"libcuda.so.{VERSION}::{LIB}/libcuda.so",
        f"libnvidia-opticalflow.so.{VERSION}::{LIB}/libnvidia-opticalflow.so",
    )
    paths = mounted(edits)
    assert f"{LIB}/libcuda.so" not in paths, "the hook makes it"
    assert f"{LIB}/libcuda.so.1" not in paths, "ldconfig makes it"


def test_plug_ins_that_are_opened_by_path_are_mounted_there(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).write(f"{LIB}/libnvidia-allocator.so.{VERSION}")
    edits = files(host).common_edits()
    assert mounted(edits)[f"{LIB}/gbm/nvidia-drm_gbm.so"] == f"{LIB}/libnvidia-allocator.so.{VERSION}"
    assert "gbm" not in str(edits.hooks)


def test_a_host_without_shell_gets_sonames_as_mounts_and_a_search_path(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.driver(LIB)
    host.remove(f"{LIB}/libnvidia-ptxjitcompiler.so.1")
    with caplog.at_level(logging.WARNING):
        found = files(host)
        edits = found.common_edits()
        found.common_edits()
    paths = mounted(edits)
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
        assert paths[f"{LIB}/{name}"].endswith(VERSION)
    (search,) = (value for value in edits.env if value.startswith("LD_LIBRARY_PATH="))
    assert search.split("=")[1].split(":")[0] == LIB
    assert edits.hooks == ()
    assert len(caplog.records) == 1


def test_nothing_of_this_process_sees_into_the_edits(host: FakeHost) -> None:
    with_ldconfig(host).driver(LIB).nodes("nvidiactl", "nvidia0", "dri/card0")
    roots = HostRoots(sys=f"{host.root}/sys", dev=f"{host.root}/dev", driver=host.root)
    found = NvidiaDriverFiles(roots, host_root=host.root)
    assert host.root not in str(found.common_edits() + found.gpu_edits(make_gpu().pci, 0))
    assert os.path.isabs(found.common_edits().mounts[0].host_path)
