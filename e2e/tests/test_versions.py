"""Two versions of the driver on one node, one after the other and both at once: the one of this checkout and the one before it.

Either finds what the other has written, and undoes what the other has done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_driver.state.schema import decode, encode
from e2e.by_process import ByProcess
from e2e.cluster import Process
from e2e.installation import ROOT, until
from e2e.objects import A100, pod, request, template
from e2e.tests.space import RUN_DIR, Space
from e2e.versions import NoHistory, version_before

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]


@dataclass(frozen=True, slots=True)
class Versions:
    """Source trees, and who starts their agents on node-b."""

    on: ByProcess
    before: Path
    this: Path = ROOT

    def start(self, source: Path) -> Process:
        return self.on.start_version(source, "node-b")

    @contextmanager
    def beside(self, source: Path, instance: str) -> Iterator[Process]:
        """An agent that others may run beside, as in a rolling update; pods can come."""
        name = f"agent-{instance}"
        log = self.on.cluster.nodes["node-b"].logs / f"{name}.log"
        process = self.on.start_version(source, "node-b", name=name, wait=False, instance=instance)
        try:
            until(name, lambda: log.exists() and "registered with the kubelet" in log.read_text(), 30)
            yield process
        finally:
            process.stop()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return version_before(tmp_path_factory.mktemp("versions") / "before")
    except NoHistory as reason:
        pytest.skip(str(reason))


@pytest.fixture
def versions(space: Space, before: Path) -> Versions:
    if not isinstance(space.on, ByProcess):
        pytest.skip("it starts agents from source trees; the chart's two versions are in tests/deploy/test_versions.py")
    return Versions(space.on, before)


def written_by_this_version(space: Space) -> set[bool]:
    """Of each record of node-b, whether it has the layout that this version gives it."""
    directory = space.on.cluster.nodes["node-b"].path(f"{RUN_DIR}/claims")
    records = [(directory / name).read_bytes() for name in space.records("node-b")]
    return {encode(decode(record)) == record for record in records}


@contextmanager
def nothing_lost(space: Space) -> Iterator[None]:
    """The same devices are published afterwards, nothing is left of any claim, and nobody complained of anything."""
    known = {item["name"] for item in space.on.devices("node-b")}
    yield
    assert {item["name"] for item in space.on.devices("node-b")} == known
    until("the records, holders and specs of all claims to go", lambda: not space.leftovers(), 60)
    assert space.warnings("") == ""


def have_their_own(space: Space, *pods: str) -> None:
    """Each pod has the GPUs that were allocated to it, and none has another's."""
    held = [space.gpus_now(name) for name in pods]
    assert held == [space.allocated_uuids(name) for name in pods]
    assert len(set().union(*held)) == sum(map(len, held))


def restart(space: Space, name: str) -> None:
    """Its container needs its CDI spec again."""
    space.end_container(name)
    space.restarted(name)


def test_an_upgrade_and_a_downgrade_leave_running_pods_their_gpus(space: Space, versions: Versions) -> None:
    space.on.agents["node-b"].stop()
    with nothing_lost(space):
        agent = versions.start(versions.before)
        space.run("first", A100, restart="Always")
        assert written_by_this_version(space) == {False}
        assert agent.stop() == 0
        agent = versions.start(versions.this)
        assert written_by_this_version(space) == {False}, "the record of a running pod was written anew"
        space.run("second", A100, restart="Always")
        assert written_by_this_version(space) == {False, True}
        restart(space, "first")
        have_their_own(space, "first", "second")
        space.delete("pod", "first")
        until("its record to go", lambda: written_by_this_version(space) == {True}, 30)
        assert agent.stop() == 0
        versions.start(versions.before)
        space.run("third", A100)
        assert written_by_this_version(space) == {False, True}
        restart(space, "second")
        have_their_own(space, "second", "third")
        for name in ("second", "third"):
            space.delete("pod", name)


def test_two_versions_overlap_as_in_a_rolling_update_and_its_rollback(space: Space, versions: Versions) -> None:
    space.on.agents["node-b"].stop()
    with nothing_lost(space), versions.beside(versions.before, "old") as old:
        space.run("first", A100)
        with versions.beside(versions.this, "new") as new:
            space.run("meanwhile", A100)
            have_their_own(space, "first", "meanwhile")
            space.delete("pod", "first")
            assert old.stop() == 0
            space.run("second", A100)
            have_their_own(space, "meanwhile", "second")
            with versions.beside(versions.before, "back"):
                space.delete("pod", "meanwhile")
                assert new.stop() == 0
                space.run("third", A100)
                have_their_own(space, "second", "third")
                for name in ("second", "third"):
                    space.delete("pod", name)


@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "downgrade"])
def test_one_version_finishes_what_the_other_was_killed_at(space: Space, versions: Versions, upgrade: bool) -> None:
    first, second = (versions.before, versions.this) if upgrade else (versions.this, versions.before)
    machine = space.on.machine("node-b")
    space.on.agents["node-b"].stop()
    agent = versions.start(first)
    machine.delay_call("nvmlDeviceGetUUID", 1.0)
    try:
        space.apply(template("gpus", request("gpus", A100, count=2)), pod("pod", templates=["gpus"]))
        until("the claim to be on record", lambda: space.records("node-b"), 30, every=0.01)
        agent.kill()
    finally:
        machine.heal()
    assert written_by_this_version(space) == {not upgrade}
    versions.start(second)
    space.poke("pod")
    space.running("pod")
    assert space.gpus("pod") == space.allocated_uuids("pod")
    assert len(space.records("node-b")) == 1
    space.delete("pod", "pod")
    until("its record, holders and spec to go", lambda: not space.leftovers(), 60)
