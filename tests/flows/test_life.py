"""The agent's own life: it starts in order, ends in order, is killed, overlaps with its successor, survives a reboot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import grpc
import pytest

from api.proto.pb import dra_v1_pb2_grpc
from dra_driver.model.claim import ClaimRef
from tests.flows.agent import Agent, Calls, Process, kubelet_of
from tests.flows.node import CLAIMS, DRIVER, GPU_0, GPU_1, SLICES, FlowNode
from tests.kubelet.fake_kubelet import eventually


@pytest.fixture
def kubelet(node: FlowNode) -> Iterator[Calls]:
    with kubelet_of(node) as calls:
        yield calls


def sockets(node: FlowNode) -> list[str]:
    return sorted(path.name for path in (node.directory / "kubelet").rglob("*") if path.is_socket())


def answered(kubelet: Calls, ref: ClaimRef) -> list[object] | None:
    """None while the kubelet still has the connection of the one that died."""
    try:
        return kubelet.prepare(ref)
    except grpc.RpcError:
        return None


@pytest.mark.parametrize("hangs_up", [False, True])
def test_terminated_in_the_middle_of_a_prepare_it_finishes_it_and_leaves_the_slices(
    node: FlowNode, kubelet: Calls, hangs_up: bool
) -> None:
    """A kubelet that sees the registration socket go may break the connection; the work goes on all the same."""
    ref = node.claim(GPU_0)
    with Process(node) as agent:
        eventually(node.published)
        plugin = kubelet.kubelet.plugin(DRIVER)
        node.api.fail("GET", f"/resourceclaims/{ref.name}", delay_s=1.5)
        request = plugin.wire.NodePrepareResourcesRequest(
            claims=[plugin.wire.Claim(uid=ref.uid, namespace=ref.namespace, name=ref.name)]
        )
        with grpc.insecure_channel(f"unix:{plugin.endpoint}") as channel:
            call = dra_v1_pb2_grpc.DRAPluginStub(channel).NodePrepareResources.future(request, timeout=30)
            eventually(lambda: node.api.count("GET", f"/resourceclaims/{ref.name}"))
            agent.terminate()
            if hangs_up:
                call.cancel()
            else:
                assert not call.result().claims[ref.uid].error
        assert agent.exit_code() == 0
    assert node.wholly_prepared(ref, GPU_0)
    assert {GPU_0, GPU_1} < set(node.published())
    assert sockets(node) == []
    assert node.litter() == []


def test_terminated_while_a_gpu_hangs_the_prepare_is_taken_back(node: FlowNode, kubelet: Calls) -> None:
    ref = node.claim(GPU_0)
    with Process(node, settings={"nvml_timeout_s": "1.5"}) as agent:
        eventually(node.published)
        plugin = kubelet.kubelet.plugin(DRIVER)
        node.machine.hang_call("*", which=0)
        with grpc.insecure_channel(f"unix:{plugin.endpoint}") as channel:
            call = dra_v1_pb2_grpc.DRAPluginStub(channel).NodePrepareResources.future(
                plugin.wire.NodePrepareResourcesRequest(
                    claims=[plugin.wire.Claim(uid=ref.uid, namespace=ref.namespace, name=ref.name)]
                ),
                timeout=30,
            )
            eventually(lambda: node.record(ref))
            agent.terminate()
            assert "no answer from NVML" in call.result().claims[ref.uid].error
        assert agent.exit_code() == 0
    assert node.nothing_left()
    assert sockets(node) == []


def test_terminated_while_it_starts_it_ends(node: FlowNode, kubelet: Calls) -> None:
    with Process(node) as agent:
        eventually(lambda: '"starting"' in agent.log.read_text())
        agent.terminate()
        assert agent.exit_code() == 0
    assert sockets(node) == []


def test_what_cannot_be_removed_at_the_end_is_said_line_by_line_and_is_no_bug(node: FlowNode) -> None:
    with Process(node) as agent:
        eventually(agent.is_serving)
        lock = node.directory / f"kubelet/plugins/{DRIVER}/sockets.lock"
        lock.unlink()
        lock.mkdir()
        agent.terminate()
        assert agent.exit_code() == 1
        lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    errors = [line for line in lines if line["level"] == "error"]
    assert len(errors) == 2, "one for each socket"
    for line in errors:
        assert line["msg"].startswith(f"opening the lock {lock}: Is a directory; ")
        assert "exception" not in line


def test_killed_and_started_again_with_pods_running_nothing_is_written_and_nothing_changes(
    node: FlowNode, kubelet: Calls
) -> None:
    ref = node.claim(GPU_0)
    with Process(node, "first") as agent:
        before = kubelet.prepare(ref)
        eventually(lambda: {GPU_0, GPU_1} < set(node.published()))
        agent.kill()
    slices, writes = node.api.list(SLICES), len(node.api.writes())
    record, spec = node.record_path(ref).read_bytes(), node.spec_path(ref).read_bytes()
    with Process(node, "second") as agent:
        eventually(agent.is_serving)
        eventually(lambda: answered(kubelet, ref) == before)
        looked = node.api.count("GET", "/resourceslices")
        eventually(lambda: node.api.open_watches > 0)
        assert looked > 0
    assert node.api.list(SLICES) == slices
    assert len(node.api.writes()) == writes
    assert node.record_path(ref).read_bytes() == record
    assert node.spec_path(ref).read_bytes() == spec


def test_two_instances_overlap_and_each_knows_what_the_other_prepared(node: FlowNode, kubelet: Calls) -> None:
    left, right = node.claim(GPU_0), node.claim(GPU_1)
    with Process(node, "old", {"instance": "old"}) as old:
        kubelet.prepare(left)
        with Process(node, "new", {"instance": "new"}) as new:
            eventually(lambda: len(kubelet.kubelet.plugins) == 2)
            assert "new" in kubelet.kubelet.plugin(DRIVER).endpoint
            kubelet.prepare(right)
            assert f"still prepared for {left}" in kubelet.refused(node.claim(GPU_0))
            assert f"still prepared for {right}" in kubelet.refused(node.claim(GPU_1))
            old.terminate()
            assert old.exit_code() == 0
            eventually(lambda: len(kubelet.kubelet.plugins) == 1)
            assert node.wholly_prepared(left, GPU_0)
            assert node.wholly_prepared(right, GPU_1)
            kubelet.unprepare(left)
            kubelet.unprepare(right)
            new.terminate()
            assert new.exit_code() == 0
    assert node.nothing_left()
    assert sockets(node) == []


def test_a_second_agent_of_the_same_name_is_refused_and_the_first_serves_on(node: FlowNode, kubelet: Calls) -> None:
    with Process(node, "first"):
        ref = node.claim(GPU_0)
        kubelet.prepare(ref)
        with Process(node, "second") as second:
            assert second.exit_code() == 1
            assert "another" in second.log.read_text()
        assert kubelet.prepare(ref)
        assert node.wholly_prepared(ref, GPU_0)


def test_after_a_reboot_nothing_is_prepared_any_more(node: FlowNode) -> None:
    refs = node.claim(GPU_0), node.claim(GPU_1, admin=True)
    with Agent(node) as agent:
        for ref in refs:
            agent.prepare(ref)
    node.machine.reboot()
    with Agent(node) as agent:
        assert node.nothing_left()
        for ref in refs:
            agent.prepare(ref)
        assert node.wholly_prepared(refs[0], GPU_0)


def test_nothing_is_served_before_recovery_is_done(node: FlowNode) -> None:
    """Else the kubelet could be given a device that recovery is just about to take back."""
    ref = node.claim(GPU_0)
    with Agent(node) as agent:
        agent.prepare(ref)
    node.machine.delay_call("*", 0.02)
    node.spec_path(ref).unlink()
    with Process(node):
        while not sockets(node):
            restored = node.spec_path(ref).exists()
            time.sleep(0.002)
        assert restored or node.spec_path(ref).exists()
        assert node.wholly_prepared(ref, GPU_0)


def test_a_claim_that_was_deleted_without_unprepare_is_undone_after_a_while(node: FlowNode) -> None:
    gone, here, replaced = node.claim(GPU_0), node.claim(GPU_1), node.claim(GPU_0, admin=True)
    with Agent(node, janitor_s="0.05", gone_s="600") as agent:
        for ref in (gone, here, replaced):
            agent.prepare(ref)
        node.api.delete(CLAIMS, gone.name, gone.namespace)
        node.claim(GPU_0, uid="00000000-0000-4000-8000-0000000000ff", name=replaced.name)
        asked = node.api.count("GET", f"/resourceclaims/{gone.name}")
        eventually(lambda: node.api.count("GET", f"/resourceclaims/{gone.name}") > asked + 3)
        assert len(node.records()) == 3, "not before its time"
    with Agent(node, janitor_s="0.05", gone_s="0.1"):
        eventually(lambda: node.records() == [here.uid])
        assert node.holders() == {GPU_1: [here.uid]}
        seen = node.api.count("GET", f"/resourceclaims/{here.name}")
        eventually(lambda: node.api.count("GET", f"/resourceclaims/{here.name}") > seen + 3)
        assert node.wholly_prepared(here, GPU_1)


def test_the_janitor_undoes_nothing_on_a_word_that_it_cannot_trust(node: FlowNode) -> None:
    ref = node.claim(GPU_0)
    with Agent(node, janitor_s="0.05", gone_s="0") as agent:
        agent.prepare(ref)
        for fault in ({"status": 500}, {"status": 404, "body": b"not found"}, {"status": 403}, {"drop": True}):
            injected = node.api.fail("GET", f"/resourceclaims/{ref.name}", times=None, **fault)
            seen = node.api.count("GET", f"/resourceclaims/{ref.name}")
            eventually(lambda seen=seen: node.api.count("GET", f"/resourceclaims/{ref.name}") > seen + 2)
            with node.api.lock:
                node.api.faults.remove(injected)
            assert node.wholly_prepared(ref, GPU_0)


def test_a_claim_that_was_gone_for_a_moment_only_is_kept(node: FlowNode) -> None:
    """As when etcd was restored from a backup, and then brought up to date."""
    ref = node.claim(GPU_0)
    with Agent(node, janitor_s="0.05", gone_s="1") as agent:
        agent.prepare(ref)
        for _ in range(3):
            node.api.delete(CLAIMS, ref.name, ref.namespace)
            seen = node.api.count("GET", f"/resourceclaims/{ref.name}")
            eventually(lambda seen=seen: node.api.count("GET", f"/resourceclaims/{ref.name}") > seen + 1)
            node.claim(GPU_0, uid=ref.uid, name=ref.name)
            seen = node.api.count("GET", f"/resourceclaims/{ref.name}")
            eventually(lambda seen=seen: node.api.count("GET", f"/resourceclaims/{ref.name}") > seen + 1)
        time.sleep(0.8)
        assert node.wholly_prepared(ref, GPU_0)
