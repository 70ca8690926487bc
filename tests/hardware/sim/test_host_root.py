"""The files of the simulated host, read as the kernel's and the driver's real files would be."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin")


def character_majors(root: Path) -> dict[str, int]:
    block = (root / "proc/devices").read_text().split("Block devices:")[0]
    rows = (line.split() for line in block.splitlines()[1:] if line)
    return {name: int(major) for major, name in rows}


def test_a_pci_device_leads_through_its_bridges_to_its_root(h100) -> None:
    link = h100.root / "sys/bus/pci/devices/0000:1b:00.0"
    inside = link.resolve().relative_to(h100.root.resolve() / "sys/devices")
    assert inside.parts == ("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:1b:00.0")
    assert not os.readlink(link).startswith("/")
    texts = {name: (link / name).read_text().strip() for name in ("vendor", "device", "class", "numa_node")}
    assert texts == {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "0"}
    assert sorted(path.name for path in (link / "drm").iterdir()) == ["card1", "renderD128"]
    assert (link / "driver").resolve().name == "nvidia"
    assert (link / "iommu_group").resolve().name == "20"


def test_sysfs_says_minus_one_where_there_is_no_numa_node(make) -> None:
    root = make("rtx-workstation").root
    assert (root / "sys/bus/pci/devices/0000:01:00.0/numa_node").read_text() == "-1\n"


def test_an_unloaded_driver_lets_go_of_its_devices(h100) -> None:
    device = h100.root / "sys/bus/pci/devices/0000:1b:00.0"
    h100.unload_driver()
    assert not (device / "driver").exists()
    assert not (device / "drm").exists()
    h100.load_driver()
    assert (device / "driver").exists()


def test_device_nodes_have_the_numbers_that_proc_gives(make) -> None:
    machine = make("t4")
    majors = character_majors(machine.root)
    assert majors["nvidia"] == 195
    expected = {f"nvidia{gpu.minor}": (195, gpu.minor) for gpu in machine.machine.gpus}
    expected |= {"nvidiactl": (195, 255), "nvidia-modeset": (195, 254)}
    expected |= {"nvidia-uvm": (majors["nvidia-uvm"], 0), "nvidia-uvm-tools": (majors["nvidia-uvm"], 1)}
    expected |= {"dri/card1": (226, 1), "dri/renderD128": (226, 128)}
    for name, numbers in expected.items():
        found = os.stat(machine.dev / name)
        if machine.device_nodes_are_real:
            assert stat.S_ISCHR(found.st_mode)
            assert (os.major(found.st_rdev), os.minor(found.st_rdev)) == numbers
            assert stat.S_IMODE(found.st_mode) == 0o666 or name.startswith("dri/card")
        else:
            assert (machine.dev / name).read_text() == f"c {numbers[0]}:{numbers[1]}\n"
    assert not (machine.dev / "nvidia-caps").exists()  # no GPU there knows MIG
    assert (machine.dev / "dri/by-path/pci-0000:3b:00.0-render").resolve().name == "renderD128"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
def test_nodes_that_may_not_be_made_are_files_and_said_to_be() -> None:
    code = (
        "import hashlib, os, subprocess, sys, yaml\n"  # before it may no longer read them
        "from dra_driver.hardware.sim import driver_files, machine_files\n"
        "from dra_driver.hardware.sim.simulation import SimulatedMachine\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "made = SimulatedMachine.create(sys.argv[1], 't4'); print(made.device_nodes_are_real)\n"
        "print((made.dev / 'nvidia0').read_text(), end='')"
    )
    with tempfile.TemporaryDirectory() as open_to_all:  # pytest's own directories are not
        os.chmod(open_to_all, 0o777)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{open_to_all}/cache"}
        command = [sys.executable, "-c", code, f"{open_to_all}/machine"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout == "False\nc 195:0\n", done.stderr


def test_gpu_information_is_keyed_by_address_and_names_the_minor(make) -> None:
    machine = make("t4")
    text = (machine.root / "proc/driver/nvidia/gpus/0000:86:00.0/information").read_text()
    rows = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    assert rows["Device Minor"] == "2"
    assert rows["Bus Location"] == "0000:86:00.0"
    assert rows["GPU UUID"] == machine.machine.gpus[1].uuid
    assert rows["Model"] == "Tesla T4"
    assert "ModifyDeviceFiles: 1\n" in (machine.root / "proc/driver/nvidia/params").read_text()
    assert "535.309.01" in (machine.root / "proc/driver/nvidia/version").read_text()


def test_the_drivers_files_lie_below_its_root(make) -> None:
    machine = make("dgx-b200")
    assert machine.driver_root == machine.root / "run/nvidia/driver"
    assert (machine.driver_root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").exists()
    assert (machine.driver_root / "usr/bin/nvidia-smi").stat().st_mode & 0o111
    assert (machine.driver_root / "dev/nvidia0").exists()
    assert machine.dev == machine.driver_root / "dev"
    assert stat.S_ISSOCK((machine.driver_root / "run/nvidia-persistenced/socket").stat().st_mode)
    assert (machine.driver_root / "lib/firmware/nvidia/590.48.01/gsp_ga10x.bin").exists()
    assert not (machine.root / "usr").exists()


def test_every_library_link_leads_to_a_file_of_the_drivers_version(h100) -> None:
    directory = h100.driver_root / "usr/lib/x86_64-linux-gnu"
    versioned = [path for path in directory.iterdir() if path.name.endswith(".so.580.126.20")]
    assert len(versioned) > 25
    for link in (path for path in directory.rglob("*.so*") if path.is_symlink()):
        assert link.exists(), link
        assert "/" not in os.readlink(link)
    assert (directory / "vdpau/libvdpau_nvidia.so.580.126.20").exists()


def test_the_dynamic_loader_takes_the_libraries(h100) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("libraries of another architecture")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        ctypes.CDLL(str(h100.driver_root / "usr/lib/x86_64-linux-gnu" / name))


@pytest.mark.skipif(LDCONFIG is None or os.geteuid() != 0, reason="needs ldconfig and root, for its -r")
def test_ldconfig_puts_the_libraries_into_the_cache_of_a_container(h100, tmp_path: Path) -> None:
    container = tmp_path / "container"
    libraries = container / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (container / "etc").mkdir()
    for path in (h100.driver_root / "usr/lib/x86_64-linux-gnu").iterdir():
        if not path.is_symlink() and path.is_file():  # as CDI mounts them: files without their links
            shutil.copy(path, libraries)
    (container / "etc/ld.so.conf").write_text("/usr/lib/x86_64-linux-gnu\n")
    subprocess.run([LDCONFIG, "-r", container], check=True, capture_output=True)
    cache = subprocess.run([LDCONFIG, "-r", container, "-p"], check=True, capture_output=True, text=True).stdout
    if os.uname().machine == "x86_64":
        for soname in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4", "libGLX_nvidia.so.0"):
            assert f"{soname} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{soname}" in cache
            assert (libraries / soname).is_symlink()


def test_an_arm_machine_has_arm_libraries(make) -> None:
    machine = make("gb200")
    library = machine.driver_root / "usr/lib/aarch64-linux-gnu/libcuda.so.595.91.07"
    assert int.from_bytes(library.read_bytes()[18:20], "little") == 183  # EM_AARCH64
    assert (machine.driver_root / "usr/bin/nvidia-imex").exists()


def test_machines_with_switches_have_their_nodes_and_the_fabric_managers_socket(h100, make) -> None:
    assert stat.S_ISSOCK((h100.root / "run/nvidia-fabricmanager/socket").stat().st_mode)
    assert (h100.dev / "nvidia-nvswitch3").exists()
    assert "nvidia-nvswitch" in character_majors(h100.root)
    assert "nvidia-nvswitch" not in character_majors(make("t4", "t4").root)
