"""Faults of files: records that cannot be read, file systems that are full or read-only, directories that vanish."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.core.recovery import recover
from dra_driver.model.claim import ClaimRef
from dra_driver.state.schema import frame
from tests.flows.agent import Agent, parts_of
from tests.flows.damage import cut_off, damages, flip_a_bit
from tests.flows.node import CLAIMS, GPU_0, GPU_1, FlowNode
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually

Mounted = Callable[..., None]


@pytest.fixture
def agent(node: FlowNode) -> Iterator[Agent]:
    with Agent(node) as running:
        yield running


@pytest.fixture
def mount() -> Iterator[Mounted]:
    """Mounts a tmpfs, or mounts it again with other options; skips where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mounted: list[Path] = []

    def make(place: Path, options: str) -> None:
        place.mkdir(exist_ok=True)
        again = "remount," if place in mounted else ""
        command = ["mount", "-t", "tmpfs", "-o", again + options, "none", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        if not again:
            mounted.append(place)

    yield make
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def newer(path: Path) -> None:
    path.write_bytes(frame(2, 0, path.read_bytes().partition(b"\n")[2]))


@damages
def test_a_record_damaged_while_running_is_rebuilt_when_the_claim_is_prepared_again(
    node: FlowNode, agent: Agent, damage: Callable[[Path], None]
) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_0)
    before = agent.prepare(ref)
    damage(node.record_path(ref))
    assert "whose record is damaged" in agent.refused(other)
    assert agent.prepare(ref) == before
    assert node.wholly_prepared(ref, GPU_0)
    [message] = eventually(lambda: node.events(ref, "ClaimRebuilt"))
    assert "was damaged (" in message
    assert "nothing has to be done" in message
    agent.unprepare(ref)
    assert node.nothing_left()


@damages
def test_a_record_damaged_while_the_agent_was_away_is_rebuilt_at_start(
    node: FlowNode, damage: Callable[[Path], None]
) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_1)
    with Agent(node) as agent:
        agent.prepare(ref)
        agent.prepare(other)
    damage(node.record_path(ref))
    with Agent(node) as agent:
        eventually(lambda: node.wholly_prepared(ref, GPU_0))
        assert node.wholly_prepared(other, GPU_1)
        eventually(lambda: node.events(ref, "ClaimRebuilt"))
        [kept] = (node.directory / "run/ledger/damaged").iterdir()
        assert kept.name.endswith(".settled")


def test_a_damaged_record_whose_claim_is_gone_is_released(node: FlowNode) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
    cut_off(node.record_path(ref))
    node.api.delete(CLAIMS, ref.name, ref.namespace)
    with Agent(node) as agent:
        eventually(lambda: not node.holders())
        agent.prepare(other)


def test_a_damaged_record_whose_claim_was_given_to_another_node_is_released(node: FlowNode) -> None:
    ref = node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
    cut_off(node.record_path(ref))
    node.claim(GPU_0, uid=ref.uid, name=ref.name, pool="node-2")
    with Agent(node) as agent:
        eventually(lambda: not node.holders())
        agent.prepare(node.claim(GPU_0))


def test_a_damaged_record_is_not_rebuilt_without_the_api_server_and_goes_on_blocking(
    node: FlowNode, api: StubApi
) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
    cut_off(node.record_path(ref))
    fault = api.fail("GET", "/resourceclaims(\\?|$|/" + ref.name + ")", 500, times=None)
    with Agent(node) as agent:
        eventually(lambda: api.count("GET", "/resourceclaims\\?") > 1)
        assert "whose record is damaged" in agent.refused(other)
        assert node.spec(ref) is not None, "its pod is running"
        with api.lock:
            api.faults.remove(fault)
        eventually(lambda: node.wholly_prepared(ref, GPU_0))


def test_a_damaged_record_whose_gpu_does_not_answer_goes_on_blocking_it(node: FlowNode) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
        eventually(node.published)
    cut_off(node.record_path(ref))
    with Agent(node, keeper_s="3600") as agent:
        eventually(lambda: node.wholly_prepared(ref, GPU_0))
        cut_off(node.record_path(ref))
        node.machine.lose_gpu(0)
        assert "0000:3b:00.0" in agent.refused(ref)
        node.machine.return_gpu(0)
        assert f"still prepared for {ref}" in agent.refused(other)
        agent.prepare(ref)
        assert node.wholly_prepared(ref, GPU_0)


def test_a_damaged_record_that_cannot_be_rebuilt_does_not_list_all_claims_again_and_again(
    node: FlowNode, api: StubApi
) -> None:
    ref = node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
    cut_off(node.record_path(ref))
    node.machine.lose_gpu(0)
    with parts_of(node) as parts:
        recover(parts.driver, parts.rooms)
        for _ in range(5):
            parts.keeper.rebuild()
    assert api.count("GET", "/resourceclaims\\?") == 1
    assert node.holders() == {GPU_0: [ref.uid]}


def test_a_damaged_record_that_is_unprepared_while_the_keeper_looks_its_claim_up_is_not_rebuilt(node: FlowNode) -> None:
    ref = node.claim(GPU_0)
    with parts_of(node) as parts:
        (prepare,) = parts.driver.prepare_each([ref])
        prepare()
        cut_off(node.record_path(ref))
        assert parts.ledger.find(ref.uid) is None
        parts.driver.unprepare(ref)
        parts.driver.rebuild(ref)
    assert node.nothing_left()


def test_a_damaged_record_is_unprepared_like_any_other(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    flip_a_bit(node.record_path(ref))
    agent.unprepare(ref)
    assert node.nothing_left()
    agent.prepare(node.claim(GPU_0))


def test_the_record_of_a_newer_version_is_left_alone_and_the_others_go_on(node: FlowNode) -> None:
    ref, same_gpu, other = node.claim(GPU_0), node.claim(GPU_0), node.claim(GPU_1)
    with Agent(node) as agent:
        agent.prepare(ref)
        agent.prepare(other)
    newer(node.record_path(ref))
    written = node.record_path(ref).read_bytes()
    with Agent(node) as agent:
        for verb in ("prepare", "unprepare"):
            assert "it was written by a newer version of the agent" in agent.refused(ref, verb)
        text = agent.refused(same_gpu)
        assert text.startswith(
            f"preparing {same_gpu}: device {GPU_0} is still prepared for the claim with UID {ref.uid}"
        )
        assert "newer version" in text
        node.spec_path(ref).unlink()  # cannot be put back, and must not keep the keeper from the others
        node.spec_path(other).unlink()
        eventually(lambda: node.wholly_prepared(other, GPU_1))
        agent.unprepare(other)
        agent.prepare(node.claim(GPU_1))
    assert node.record_path(ref).read_bytes() == written
    assert node.holders()[GPU_0] == [ref.uid]


def test_run_dir_full_prepare_fails_with_the_reason_and_works_again_with_space(node: FlowNode, mount: Mounted) -> None:
    run = node.directory / "run"
    mount(run, "size=256k")
    with Agent(node) as agent:
        ready = node.claim(GPU_1)
        before = agent.prepare(ready)
        filler = run / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(1 << 20))
        ref = node.claim(GPU_0)
        text = agent.refused(ref)
        assert "no space" in text
        assert str(run) in text
        assert agent.prepare(ready) == before
        assert node.wholly_prepared(ready, GPU_1)
        assert node.specs() == [node.spec_path(ready).name]
        assert GPU_0 not in node.holders()
        agent.unprepare(ready)
        filler.unlink()
        agent.prepare(ref)
        agent.unprepare(ref)
        assert node.nothing_left()


def test_run_dir_read_only_nothing_is_lost_and_it_works_again_when_it_is_not(node: FlowNode, mount: Mounted) -> None:
    run = node.directory / "run"
    mount(run, "size=256k")
    with Agent(node) as agent:
        ready, ref = node.claim(GPU_1), node.claim(GPU_0)
        before = agent.prepare(ready)
        mount(run, "size=256k,ro")
        assert "read-only" in agent.refused(ref)
        assert "read-only" in agent.refused(ready, "unprepare")
        mount(run, "size=256k,rw")
        assert agent.prepare(ready) == before
        agent.prepare(ref)
        agent.unprepare(ready)
        agent.unprepare(ref)
        assert node.nothing_left()


def test_started_with_a_read_only_run_dir_it_serves_and_says_so(node: FlowNode, mount: Mounted) -> None:
    run = node.directory / "run"
    mount(run, "size=256k")
    with Agent(node) as agent:
        ready = node.claim(GPU_1)
        before = agent.prepare(ready)
    (run / "ledger/claims/.left.json.0123456789abcdef.tmp").touch()
    mount(run, "size=256k,ro")
    with Agent(node) as agent:
        assert "read-only" in agent.refused(node.claim(GPU_0))
        mount(run, "size=256k,rw")
        assert agent.prepare(ready) == before
        agent.prepare(node.claim(GPU_0))


def test_cdi_directory_read_only_prepare_is_taken_back(node: FlowNode, mount: Mounted) -> None:
    cdi = node.directory / "cdi"
    mount(cdi, "size=256k")
    with Agent(node) as agent:
        ready, ref = node.claim(GPU_1), node.claim(GPU_0)
        agent.prepare(ready)
        mount(cdi, "size=256k,ro")
        assert "read-only" in agent.refused(ref)
        assert "read-only" in agent.refused(ready, "unprepare")
        mount(cdi, "size=256k,rw")
        agent.prepare(ref)
        assert node.wholly_prepared(ready, GPU_1)
        agent.unprepare(ready)
        agent.unprepare(ref)
        assert node.nothing_left()


@pytest.mark.parametrize("remake", [False, True])
def test_cdi_specs_that_vanish_while_running_are_put_back(node: FlowNode, agent: Agent, remake: bool) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    whole = node.spec_path(ref).read_bytes()
    shutil.rmtree(node.directory / "cdi")
    if remake:
        (node.directory / "cdi").mkdir()
    eventually(lambda: node.spec_path(ref).exists())
    assert node.spec_path(ref).read_bytes() == whole
    agent.unprepare(ref)
    assert not node.spec_path(ref).exists()


def test_files_of_others_in_the_cdi_directory_are_never_touched(node: FlowNode) -> None:
    cdi = node.directory / "cdi"
    cdi.mkdir()
    names = ("nvidia.yaml", "k8s.gpu.nvidia.com-other_1.json", ".k8s.other-claim_1.json.0123456789abcdef.tmp")
    for name in names:
        (cdi / name).touch()
        os.utime(cdi / name, (1, 1))
    with Agent(node) as agent:
        ref = node.claim(GPU_0)
        agent.prepare(ref)
        agent.unprepare(ref)
    assert sorted(path.name for path in cdi.iterdir()) == sorted(names)


def test_what_a_killed_writer_left_in_the_cdi_directory_goes_while_serving(node: FlowNode) -> None:
    """At a start within the same minute it could still have been a live writer's of another instance."""
    ref = node.claim(GPU_0)
    with Agent(node, janitor_s="0.05") as agent:
        agent.prepare(ref)
        left = node.spec_path(ref).with_name(f".{node.spec_path(ref).name}.0123456789abcdef.tmp")
        left.touch()
        os.utime(left, (1, 1))
        eventually(lambda: not left.exists())


def test_a_uid_that_is_a_path_reaches_no_file(node: FlowNode, agent: Agent) -> None:
    for uid in ("../../x", ".", ""):
        ref = ClaimRef(uid, "default", "evil")
        agent.refused(ref)
        assert "is not a claim UID" in agent.refused(ref, "unprepare")
    assert node.nothing_left()
