"""Faults of claims, through the whole agent: every refusal says why, concerns one claim only, and leaves nothing behind."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.hardware.driver_files import LOOK_EVERY_S
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import GiveUp
from tests.flows.agent import Agent, parts_of
from tests.flows.node import CLAIMS, DRIVER, GPU_0, GPU_1, FlowNode
from tests.kubelet.fake_kubelet import eventually

NEW_POD = "if its pod is still there, delete the pod: a new one gets a claim of its own"
GPU_CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}


@pytest.fixture
def agent(node: FlowNode) -> Iterator[Agent]:
    with Agent(node) as running:
        yield running


def config(parameters: Any, *requests: str, driver: str = DRIVER, source: str = "FromClaim") -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source, "opaque": {"driver": driver, "parameters": parameters}}
    return {**entry, "requests": list(requests)} if requests else entry


def test_a_claim_that_is_gone_is_refused(node: FlowNode, agent: Agent) -> None:
    ref = ClaimRef("00000000-0000-4000-8000-0000000000aa", "default", "gone")
    assert agent.refused(ref) == f"reading {ref}: it does not exist any more; {NEW_POD}"
    assert node.nothing_left()


def test_another_claim_of_the_same_name_is_not_taken_for_the_one_that_was_meant(node: FlowNode, agent: Agent) -> None:
    new = node.claim(GPU_0)
    old = ClaimRef("00000000-0000-4000-8000-0000000000aa", new.namespace, new.name)
    assert (
        agent.refused(old) == f"reading {old}: it was replaced: the claim of this name now has UID {new.uid}; {NEW_POD}"
    )
    agent.prepare(new)
    agent.unprepare(old)
    assert node.wholly_prepared(new, GPU_0)


def test_a_claim_that_is_not_allocated_is_refused_until_it_is(node: FlowNode, agent: Agent) -> None:
    ref = ClaimRef("00000000-0000-4000-8000-0000000000ab", "default", "waiting")
    node.put_claim(ref, {})
    assert "it is not allocated" in agent.refused(ref)
    node.claim(GPU_0, uid=ref.uid, name=ref.name)
    agent.prepare(ref)


def test_a_device_that_is_not_there_is_refused_and_said_in_an_event(node: FlowNode, agent: Agent) -> None:
    ref = node.claim("gpu-0000-ff-00-0")
    text = agent.refused(ref)
    assert text.startswith(f"preparing {ref}: device gpu-0000-ff-00-0 was allocated, but this node has no such device")
    eventually(lambda: node.events(ref, "PrepareRefused") == [text])
    assert node.nothing_left()


def test_a_device_of_another_pool_is_refused(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0, pool="node-2")
    assert f"device {GPU_0} was allocated from pool node-2, this node publishes pool node-1" in agent.refused(ref)


def test_a_claim_without_a_device_of_this_driver_is_refused(node: FlowNode, agent: Agent) -> None:
    ref = node.claim()
    assert f"preparing {ref}: no device of this driver is allocated to it" in agent.refused(ref)
    assert node.nothing_left()


def test_a_device_that_is_still_prepared_for_another_claim_waits_until_it_is_free(node: FlowNode, agent: Agent) -> None:
    first, second = node.claim(GPU_0), node.claim(GPU_0, GPU_1)
    agent.prepare(first)
    assert f"device {GPU_0} is still prepared for {first}" in agent.refused(second)
    assert node.holders() == {GPU_0: [first.uid]}
    agent.unprepare(first)
    agent.prepare(second)
    assert node.wholly_prepared(second, GPU_0, GPU_1)


def test_a_device_that_is_let_go_a_moment_later_is_waited_for_instead_of_refused(node: FlowNode) -> None:
    """After a forced delete the kubelet unprepares the old claim just after it asked for the new one, and what is refused it
    asks for again only after 10 s or more."""
    node.settings["handover_s"] = "20"
    with Agent(node) as agent:
        first, second = node.claim(GPU_0), node.claim(GPU_0)
        agent.prepare(first)
        answers: list[str] = []
        waiting = threading.Thread(target=lambda: answers.append(agent.prepare(second)))  # type: ignore[func-returns-value]
        asked = node.api.count("GET", second.name)
        waiting.start()
        eventually(lambda: node.api.count("GET", second.name) >= asked + 2)
        agent.unprepare(first)
        waiting.join(10)
        assert len(answers) == 1
        assert node.wholly_prepared(second, GPU_0)


def test_a_claim_that_was_unprepared_since_it_was_asked_for_is_asked_for_again(node: FlowNode) -> None:
    """The kubelet may have been restarted in between; what was true when it asked would bring the claim back."""
    ref = node.claim(GPU_0)
    with parts_of(node) as parts:
        (prepare,) = parts.driver.prepare_each([ref])
        parts.driver.unprepare(ref)
        node.api.delete(CLAIMS, ref.name, ref.namespace)
        with pytest.raises(GiveUp, match="does not exist any more"):
            prepare()
    assert node.nothing_left()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({**GPU_CONFIG, "sharing": {"strategy": "MPS", "mpsConfg": {}}}, "sharing.mpsConfg"),
        ({**GPU_CONFIG, "sharing": {"strategy": 1}}, "sharing.strategy"),
        ({"apiVersion": "resource.nvidia.com/v9", "kind": "GpuConfig"}, "use resource.nvidia.com/v1beta1"),
        ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "VfioDeviceConfig"}, "kind: "),
        ({}, "apiVersion: "),
        (
            {**GPU_CONFIG, "sharing": {"strategy": "TimeSlicing"}},
            "request r0 asks for sharing strategy TimeSlicing, which this driver does not offer",
        ),
        ({**GPU_CONFIG, "kind": "MigDeviceConfig"}, None),
    ],
    ids=["unknown-field", "wrong-type", "unknown-version", "vfio", "empty", "not-offered", "other-kind-for-all"],
)
def test_configuration_that_cannot_be_applied_is_refused_with_its_path(
    node: FlowNode, agent: Agent, parameters: Any, words: str | None
) -> None:
    ref = node.claim(GPU_0, configs=[config(parameters)])
    if words is None:
        agent.prepare(ref)  # names no request and fits no device: passed over
        return
    text = agent.refused(ref)
    assert words in text
    assert str(ref) in text
    eventually(lambda: node.events(ref, "PrepareRefused"))
    assert node.nothing_left()


def test_all_mistakes_of_all_entries_are_told_at_once(node: FlowNode, agent: Agent) -> None:
    wrong = {**GPU_CONFIG, "sharing": {"strategy": "Nap"}}
    ref = node.claim(GPU_0, configs=[config(wrong, source="FromClass"), config(GPU_CONFIG), config(wrong, "r0")])
    text = agent.refused(ref)
    assert "configuration 1 (from the DeviceClass): sharing.strategy" in text
    assert "configuration 3 (from the claim for request r0): sharing.strategy" in text


def test_46_kib_of_configuration_are_read(node: FlowNode, agent: Agent) -> None:
    """The API allows 10 KiB an entry and 32 entries."""
    limits = {f"GPU-{number:036d}": "1Gi" for number in range(196)}
    large = {**GPU_CONFIG, "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": limits}}}
    foreign = [config({"anything": "x" * 10000}, driver="net.example.com") for _ in range(3)]
    others = [config(large, "r1") for _ in range(2)]
    configs = [*foreign, *others, *(config(GPU_CONFIG) for _ in range(27))]
    assert len(json.dumps(configs)) > 46 * 1024
    ref = node.claim(GPU_0, configs=configs)
    agent.prepare(ref)
    assert node.wholly_prepared(ref, GPU_0)


def test_configuration_of_other_drivers_is_nobodys_mistake(node: FlowNode, agent: Agent) -> None:
    agent.prepare(node.claim(GPU_0, configs=[config({"kind": 7}, driver="net.example.com"), config("x", driver="y")]))


def test_a_subrequest_is_answered_by_its_request_and_configured_by_it(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0, GPU_1, requests=["gpu/small", "gpu/large"])
    assert [list(device.request_names) for device in agent.prepare(ref)] == [["gpu"], ["gpu"]]
    mps = {**GPU_CONFIG, "sharing": {"strategy": "MPS"}}
    agent.unprepare(ref)
    for named in ("gpu", "gpu/small"):
        ref = node.claim(GPU_0, requests=["gpu/small"], configs=[config(mps, named)])
        assert "request gpu/small asks for sharing strategy MPS" in agent.refused(ref)
    agent.prepare(node.claim(GPU_0, requests=["gpu/small"], configs=[config(mps, "gpu/large")]))


def test_admin_access_looks_on_beside_a_holder_and_holds_nothing(node: FlowNode, agent: Agent) -> None:
    user, admin, next_user = node.claim(GPU_0), node.claim(GPU_0, admin=True), node.claim(GPU_0)
    agent.prepare(user)
    agent.prepare(admin)
    assert node.holders() == {GPU_0: [user.uid]}
    agent.unprepare(user)
    agent.prepare(next_user)
    assert node.spec(admin) is not None
    agent.unprepare(admin)
    assert node.wholly_prepared(next_user, GPU_0)


def test_prepared_again_after_the_kubelet_restarted_the_answer_is_the_same(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_1, GPU_0)
    before = agent.prepare(ref)
    agent.kubelet.restart()
    assert agent.prepare(ref) == before
    assert [device.device_name for device in before] == [GPU_1, GPU_0], "in the order of the allocation"


def test_claims_of_one_call_are_answered_each_on_its_own(node: FlowNode, agent: Agent) -> None:
    good, bad, gone = node.claim(GPU_0), node.claim("gpu-0000-ff-00-0"), ClaimRef("aa", "default", "gone")
    answers = agent.ask("prepare", good, bad, gone)
    assert [bool(answers[ref.uid].error) for ref in (good, bad, gone)] == [False, True, True]
    answers = agent.ask("unprepare", gone, bad, good)
    assert not any(answer.error for answer in answers.values())
    assert node.nothing_left()


def test_two_claims_of_one_call_for_one_device_get_it_once(node: FlowNode, agent: Agent) -> None:
    refs = [node.claim(GPU_0) for _ in range(4)]
    answers = agent.ask("prepare", *refs)
    [winner] = [ref for ref in refs if not answers[ref.uid].error]
    assert all(f"still prepared for {winner}" in answers[ref.uid].error for ref in refs if ref != winner)


def test_unprepare_of_an_unknown_claim_succeeds(node: FlowNode, agent: Agent) -> None:
    agent.unprepare(ClaimRef("00000000-0000-4000-8000-0000000000aa", "default", "never-seen"))


def test_a_claim_is_unprepared_though_its_object_is_gone(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    node.api.delete(CLAIMS, ref.name, ref.namespace)
    agent.unprepare(ref)
    assert node.nothing_left()


def test_a_prepared_claim_whose_cdi_file_is_gone_is_answered_with_the_file_in_place(node: FlowNode) -> None:
    with Agent(node, keeper_s="3600") as agent:
        ref = node.claim(GPU_0)
        agent.prepare(ref)
        whole = node.spec_path(ref).read_bytes()
        for damage in (node.spec_path(ref).unlink, lambda: node.spec_path(ref).write_text("{")):
            damage()
            agent.prepare(ref)
            assert node.spec_path(ref).read_bytes() == whole


def test_after_a_driver_upgrade_a_prepared_claim_is_answered_with_the_new_files(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    agent.prepare(ref)
    [library] = [
        mount["hostPath"] for mount in node.spec(ref)["containerEdits"]["mounts"] if "libcuda.so." in mount["hostPath"]
    ]
    newer = library.rpartition("libcuda.so.")[0] + "libcuda.so.999.0"
    rename_version(node, library, newer)
    time.sleep(LOOK_EVERY_S)
    agent.prepare(ref)
    assert newer in node.spec_path(ref).read_text()
    assert library not in node.spec_path(ref).read_text()


def rename_version(node: FlowNode, library: str, newer: str) -> None:
    """As an installer does: the new file beside the old one, the links moved, the old one removed."""
    old, new = Path(library), Path(newer)
    new.write_bytes(old.read_bytes())
    for link in old.parent.iterdir():
        if link.is_symlink() and link.readlink().name == old.name:
            link.unlink()
            link.symlink_to(new.name)
    old.unlink()


def test_unprepared_while_its_prepare_is_under_way_nothing_stays_prepared(node: FlowNode, agent: Agent) -> None:
    """A kubelet that restarts gives up its call; the new one may find the pod gone and unprepare at once."""
    ref = node.claim(GPU_0)
    agent.prepare(ref)  # everything that is slow the first time is done
    agent.unprepare(ref)
    since = node.api.count("GET", f"resourceclaims/{ref.name}")
    node.api.fail("GET", f"resourceclaims/{ref.name}", delay_s=1.0)
    first = threading.Thread(target=agent.ask, args=("prepare", ref))
    first.start()
    eventually(lambda: node.api.count("GET", f"resourceclaims/{ref.name}") > since)
    agent.unprepare(ref)
    first.join()
    assert node.nothing_left()


def test_asked_twice_at_the_same_time_a_claim_is_prepared_once(node: FlowNode, agent: Agent) -> None:
    ref = node.claim(GPU_0, GPU_1)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(agent.prepare(ref))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answer == answers[0] for answer in answers)
    assert node.wholly_prepared(ref, GPU_0, GPU_1)
