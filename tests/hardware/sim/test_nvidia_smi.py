"""The program that containers run: it sees what was injected and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dra_driver.hardware.sim.nvidia_smi import HERE, built_program

IN_CONTAINER = os.geteuid() == 0


@pytest.fixture
def container(tmp_path: Path):
    """Injects into an empty root what a CDI spec would: the program, the library, some nodes; then runs the program
    in it, by chroot where permitted."""

    def inject(machine, *nodes: str, library: bool = True, program: Path | None = None):
        root = tmp_path / "container"
        shutil.rmtree(root, ignore_errors=True)
        (root / "usr/bin").mkdir(parents=True)
        shutil.copy(program or machine.driver_root / "usr/bin/nvidia-smi", root / "usr/bin/nvidia-smi")
        (root / "usr/bin/nvidia-smi").chmod(0o755)
        if library:
            directory = root / machine.layout.libraries.relative_to(machine.driver_root)
            directory.mkdir(parents=True)
            os.link(machine.layout.management_library, directory / machine.layout.management_library.name)
        for node in nodes:  # presence is all that counts
            (root / "dev" / node).parent.mkdir(parents=True, exist_ok=True)
            (root / "dev" / node).touch()

        def run(*words: str) -> tuple[int, str]:
            inside = program is None and IN_CONTAINER
            # The program chroot, because Python that runs between fork and exec may meet the locks of other threads.
            command = ["chroot", root, "/usr/bin/nvidia-smi"] if inside else [root / "usr/bin/nvidia-smi"]
            environment = os.environ if inside else {**os.environ, "NVIDIA_SIM_ROOT": str(root)}
            done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

        return run

    return inject


def test_a_container_with_one_device_sees_that_one_as_number_zero(h100, container) -> None:
    gpu = h100.machine.gpus[5]
    smi = container(h100, "nvidiactl", "nvidia5")
    assert smi("-L") == (0, f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})\n")
    assert smi("--query-gpu=index,uuid,pci.bus_id,memory.total", "--format=csv,noheader") == (
        0,
        f"0, {gpu.uuid}, 00000000:C3:00.0, 81559 MiB\n",
    )
    status, table = smi()
    assert status == 0
    assert "Driver Version: 580.126.20" in table
    assert "CUDA Version: 13.0" in table
    assert table.count("NVIDIA H100 80GB HBM3") == 1
    assert len({len(line) for line in table.splitlines()}) == 1


def test_devices_are_found_by_minor_and_numbered_by_address(make, container) -> None:
    machine = make("t4")
    smi = container(machine, "nvidiactl", "nvidia1", "nvidia2")  # minors of the fourth and the second
    expected = [machine.machine.gpus[1].uuid, machine.machine.gpus[3].uuid]
    assert smi("-L")[1] == "".join(f"GPU {i}: Tesla T4 (UUID: {uuid})\n" for i, uuid in enumerate(expected))


def test_without_a_device_it_says_so_and_exits_with_6(h100, container) -> None:
    assert container(h100, "nvidiactl")("-L") == (6, "No devices were found\n")


def test_without_the_library_it_says_so_and_exits_with_12(h100, container) -> None:
    status, text = container(h100, "nvidiactl", "nvidia0", library=False)("-L")
    assert status == 12
    assert text.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


def test_without_the_control_node_or_the_driver_it_exits_with_9(h100, container) -> None:
    assert container(h100, "nvidia0")("-L")[0] == 9
    smi = container(h100, "nvidiactl", "nvidia0")
    assert smi("-L")[0] == 0
    h100.unload_driver()  # the library in the container is the same file: it sees the change
    status, text = smi("-L")
    assert status == 9
    assert "couldn't communicate with the NVIDIA driver" in text


def test_a_lost_gpu_is_named(h100, container) -> None:
    smi = container(h100, "nvidiactl", "nvidia0")
    h100.lose_gpu(0)
    status, text = smi("-L")
    assert status == 15
    assert "0000:1B:00.0: GPU is lost" in text


def test_a_container_sees_the_mig_devices_whose_capabilities_it_has(nvml, h100, container) -> None:
    h100.set_mig_mode(0, enabled=True)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    uuids = []
    for profile, compute in ((9, 2), (19, 0)):
        instance = nvml.nvmlDeviceCreateGpuInstance(handle, profile)
        ci = nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute)
        uuids.append(nvml.nvmlDeviceGetUUID(nvml.nvmlComputeInstanceGetInfo(ci).device))
    gpu = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {h100.machine.gpus[0].uuid})\n"
    big = f"  MIG 3g.40gb     Device  0: (UUID: {uuids[0]})\n"
    small = f"  MIG 1g.10gb     Device  0: (UUID: {uuids[1]})\n"
    nodes = (
        "nvidiactl",
        "nvidia0",
        "nvidia-caps/nvidia-cap12",
        "nvidia-caps/nvidia-cap13",
    )  # GI 1 and its CI 0
    assert container(h100, *nodes)("-L") == (0, gpu + big)
    assert container(h100, "nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap102", "nvidia-caps/nvidia-cap103")("-L") == (
        0,
        gpu + small,
    )
    assert container(h100, "nvidiactl", "nvidia0")("-L") == (0, gpu)
    assert container(h100, "nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap1")("-L")[1].count("MIG-") == 2


def test_a_time_slice_is_set_from_the_host_and_reset_by_a_reboot(h100) -> None:
    environment = {**os.environ, "NVIDIA_SIM_ROOT": str(h100.root)}
    program = h100.driver_root / "usr/bin/nvidia-smi"

    def set_to(value: str, gpu: str) -> int:
        words = [program, "compute-policy", "-i", gpu, "--set-timeslice", value]
        return subprocess.run(words, env=environment, capture_output=True, check=False).returncode

    assert set_to("2", h100.machine.gpus[1].uuid) == 0
    assert (h100.timeslice(1), h100.timeslice(0)) == (2, 0)
    assert set_to("7", h100.machine.gpus[1].uuid) != 0
    assert set_to("1", "GPU-none") != 0
    h100.reboot()
    assert h100.timeslice(1) == 0


@pytest.mark.parametrize("nodes", [("nvidiactl", "nvidia5"), ("nvidiactl",), ("nvidia5",)])
@pytest.mark.parametrize("words", [(), ("-L",)])
def test_the_shell_script_answers_as_the_program_does(nodes, words, nvml, h100, container) -> None:
    if built_program() is None:
        pytest.skip("no C compiler here, so there is no program to compare with")
    script = container(h100, *nodes, program=HERE / "nvidia_smi.sh")
    answer = script(*words)
    assert answer == container(h100, *nodes)(*words)


def test_without_a_compiler_the_script_is_installed_and_said_to_be(make, monkeypatch, tmp_path: Path, caplog) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = make("t4")
    assert (machine.driver_root / "usr/bin/nvidia-smi").read_bytes().startswith(b"#!/bin/sh")
    assert "installing a shell script instead" in caplog.text


def test_the_program_is_built_without_a_warning(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    flags = ("-D_GNU_SOURCE", "-static", "-Os", "-Wall", "-Wextra", "-Werror", "-std=gnu11")
    subprocess.run([compiler, *flags, "-o", tmp_path / "smi", HERE / "nvidia_smi.c"], check=True, timeout=120)


def test_other_names_of_the_program_do_nothing(h100) -> None:
    done = subprocess.run(
        [h100.driver_root / "usr/bin/nvidia-persistenced"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "stands for the program of that name" in done.stderr
