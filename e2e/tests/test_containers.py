"""What a container finds: its own devices, the driver's libraries where programs look for them, and nothing else."""

from __future__ import annotations

import pytest

from e2e.objects import L40S, STAY, pod, request, template
from e2e.tests.space import Space

pytestmark = pytest.mark.once
GLIBC = "e2e/glibc:1"
CONTROL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}


def devices(space: Space, name: str, container: str | None = None) -> set[str]:
    listed = space.execute(name, "for f in /dev/nvidia*; do [ -c $f ] && echo ${f#/dev/}; done; true", container)
    return set(listed.split())


def test_a_container_sees_the_control_devices_and_its_own_gpus_only(space: Space) -> None:
    space.apply(
        template("two", request("one", L40S), request("other", L40S)),
        pod(
            "pod",
            templates=["two"],
            containers={"one": [{"name": "two", "request": "one"}], "both": [{"name": "two"}], "none": []},
            command=STAY,
        ),
    )
    space.running("pod")
    one, both = devices(space, "pod", "one"), devices(space, "pod", "both")
    assert one >= CONTROL
    assert len(own := {name for name in one if name[6:].isdigit()}) == 1
    assert own < {name for name in both if name[6:].isdigit()}
    assert len(both - one) == 1
    assert devices(space, "pod", "none") == set()
    assert space.execute("pod", "command -v nvidia-smi || echo none", "none").strip() == "none"


def test_the_nvidia_runtime_is_told_to_inject_nothing_a_second_time(space: Space) -> None:
    space.run("pod")
    assert space.execute("pod", "echo $NVIDIA_VISIBLE_DEVICES").strip() == "void"


def test_a_program_finds_the_libraries_through_the_loader_cache(space: Space) -> None:
    gpu = pod("pod", templates=["gpu"], image=GLIBC)
    space.apply(template("gpu"), gpu)
    space.running("pod")
    cache = space.execute("pod", "ldconfig -p")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
        (path,) = [line.split("=> ")[1] for line in cache.splitlines() if line.split()[:1] == [library]]
        assert space.execute("pod", f"[ -s {path} ] && echo there").strip() == "there"
    assert space.gpus("pod") == space.allocated_uuids("pod")


def test_an_image_with_a_single_program_and_no_shell_gets_its_gpu(space: Space) -> None:
    """The pause image: `nvidia-smi` comes from the driver, as a program that needs nothing of the image."""
    single = pod("pod", templates=["gpu"], image="e2e/pause:1")
    single["spec"]["containers"][0]["command"] = ["nvidia-smi", "-L"]
    space.apply(template("gpu"), single)
    assert space.finished("pod")["status"]["phase"] == "Succeeded"
    assert len(space.gpus("pod")) == 1
