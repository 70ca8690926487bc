"""What happens to the files of the agent while pods run: disks that are full or read-only, records and specs that somebody damages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_driver.state.schema import frame
from e2e.cluster import Node
from e2e.installation import until
from e2e.objects import A100, pod, request, template
from e2e.tests.space import RUN_DIR, Space

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]


@contextmanager
def bad_disk(node: Node, path: str, state: str) -> Iterator[None]:
    """A file system of 64 KiB in the place of a directory of the node, full or read-only."""

    def run(*argv: str) -> None:
        done = node.run(argv)
        assert done.returncode == 0, done.stderr

    node.cover(path, "64k")
    try:
        if state == "full":
            run("sh", "-c", f"! head -c 1000000 /dev/zero 2>/dev/null >{path}/filler")
        else:
            run("mount", "-o", "remount,ro", path)
        yield
    finally:
        node.uncover(path)


@pytest.mark.parametrize(
    ("state", "words"), [("full", "no space or no inodes left on its file system"), ("read-only", "is read-only")]
)
@pytest.mark.parametrize("path", ["/run/gpu.nvidia.com", "/run/cdi"])
def test_a_pod_waits_for_a_disk_that_can_be_written(space: Space, path: str, state: str, words: str) -> None:
    with bad_disk(space.on.cluster.nodes["node-b"], path, state):
        space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"]))
        reason = space.pending("pod", words)
        assert f"{path}/" in reason
        assert "it is tried again" in reason
    space.poke("pod")
    space.running("pod")
    assert space.gpus("pod") == space.allocated_uuids("pod")


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:40])


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut_off, flip_a_bit, Path.unlink])
def test_a_damaged_or_lost_record_is_rebuilt_and_its_pod_goes_on(space: Space, damage: Callable[[Path], None]) -> None:
    space.run("pod", A100)
    space.on.agents["node-b"].kill()
    (name,) = space.records("node-b")
    damage(space.on.cluster.nodes["node-b"].path(f"{RUN_DIR}/claims/{name}"))
    space.on.start_agent("node-b")
    until("the record to be rebuilt", lambda: name in space.records("node-b"), 30)
    said = until("an Event", lambda: space.warnings("pod-pod-gpu") or None, 30)
    assert "ClaimRebuilt" in said
    assert "nothing has to be done" in said
    space.run("later", A100)
    assert space.gpus("later").isdisjoint(space.gpus_now("pod"))
    space.delete("pod", "pod")
    until("the record to go", lambda: name not in space.records("node-b"), 30)


def test_the_record_of_a_newer_version_is_kept_until_that_version_is_back(space: Space) -> None:
    """After a downgrade of the driver: what this version does not understand it neither answers nor undoes."""
    space.run("pod", A100)
    (name,) = space.records("node-b")
    record = space.on.cluster.nodes["node-b"].path(f"{RUN_DIR}/claims/{name}")
    understood = record.read_bytes()
    newer = frame(2, 0, understood.partition(b"\n")[2])
    record.write_bytes(newer)
    space.on.agents["node-b"].kill()
    space.on.start_agent("node-b")
    space.delete("pod", "pod", "--wait=false")
    said = until("an Event", lambda: space.warnings("pod-pod-gpu") or None, 30)
    assert "UnprepareRefused" in said
    assert "it was written by a newer version of the agent" in said
    assert "upgrade the agent again, or drain the node and reboot it" in said
    assert record.read_bytes() == newer
    record.write_bytes(understood)
    space.poke("pod")
    until("the pod to go", lambda: space.on.pod("pod", space.name) is None, 60)


def test_a_cdi_spec_that_somebody_changed_is_put_right_before_a_container_needs_it(space: Space) -> None:
    space.run("pod", A100, restart="Always")
    (name,) = space.on.on_node("node-b", "/run/cdi")
    spec = space.on.cluster.nodes["node-b"].path(f"/run/cdi/{name}")
    whole = spec.read_bytes()
    flip_a_bit(spec)
    until("the spec to be as it was", lambda: spec.read_bytes() == whole, 10)
    space.end_container("pod")
    space.restarted("pod")
    assert space.gpus_now("pod") == space.allocated_uuids("pod")


def test_a_run_directory_wiped_under_running_pods_is_rebuilt(space: Space) -> None:
    space.run("pod", A100, restart="Always")
    (name,) = space.records("node-b")
    node = space.on.cluster.nodes["node-b"]
    assert node.run(["sh", "-c", "rm -rf /run/gpu.nvidia.com/*"]).returncode == 0
    until("the record to be rebuilt", lambda: name in space.records("node-b"), 10)
    space.end_container("pod")
    space.restarted("pod")
    space.run("later", A100)
    assert space.gpus("later").isdisjoint(space.gpus_now("pod"))
