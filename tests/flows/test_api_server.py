"""Faults of the API server: what is on record goes on, the rest is refused with the reason, and nothing waits for ever."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.flows.agent import Agent
from tests.flows.node import GPU_0, GPU_1, FlowNode
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually

CLAIM = "/resourceclaims/claim-"
FORBIDDEN = (
    'resourceclaims.resource.k8s.io "x" is forbidden: User "system:serviceaccount:a:b" cannot get resource '
    '"resourceclaims" in API group "resource.k8s.io" in the namespace "default"'
)


@pytest.fixture
def agent(node: FlowNode) -> Iterator[Agent]:
    with Agent(node) as running:
        eventually(node.published)
        yield running


def test_down_at_prepare_the_next_call_works(node: FlowNode, api: StubApi, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    fault = api.fail("GET", ".*", drop=True, times=None)
    text = agent.refused(ref)
    assert "check that the API server http://127.0.0.1" in text
    assert node.nothing_left()
    api.faults.remove(fault)
    agent.prepare(ref)


@pytest.mark.parametrize(
    "fault",
    [
        {"drop": True},
        {"status": 500},
        {"status": 429, "headers": {"Retry-After": "7"}},
        {"status": 401, "reason": "Unauthorized"},
        {"status": 403, "reason": "Forbidden", "message": FORBIDDEN},
        {"status": 404, "body": b"404 page not found\n"},
        {"status": 200, "body": b"<html>login</html>"},
    ],
    ids=["down", "500", "429", "401", "403", "no-such-path", "a-proxy"],
)
def test_a_ready_claim_is_answered_from_the_ledger_whatever_the_api_server_says_but_gone(
    node: FlowNode, api: StubApi, agent: Agent, fault: dict[str, object]
) -> None:
    """After a restart of the kubelet all pods of the node are prepared again; their claims are what they were."""
    ref, new = node.claim(GPU_0), node.claim(GPU_1)
    before = agent.prepare(ref)
    api.fail("GET", ".*", times=None, **fault)
    assert agent.prepare(ref) == before
    assert "/resourceclaims/" in agent.refused(new) or "resource.k8s.io" in agent.refused(new)
    agent.unprepare(ref)
    assert node.nothing_left()


def test_slow_by_three_seconds_a_claim_is_prepared_and_others_do_not_wait(
    node: FlowNode, api: StubApi, agent: Agent
) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_1)
    api.fail("GET", f"/resourceclaims/{ref.name}", delay_s=3.0)
    begin = time.monotonic()
    answers = agent.ask("prepare", ref, other)
    assert not any(answer.error for answer in answers.values())
    assert 3.0 <= time.monotonic() - begin < 10.0
    times = {uid: node.record_path(claim).stat().st_mtime for uid, claim in ((ref.uid, ref), (other.uid, other))}
    assert times[ref.uid] - times[other.uid] > 2.0


def test_500_is_told_and_the_next_call_works(node: FlowNode, api: StubApi, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    api.fail("GET", CLAIM, 500, message="etcdserver: request timed out", reason="InternalError")
    text = agent.refused(ref)
    assert "HTTP 500 InternalError: etcdserver: request timed out; retry" in text
    agent.prepare(ref)


def test_429_is_told_at_once_instead_of_waiting_in_the_call(node: FlowNode, api: StubApi, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    api.fail("GET", CLAIM, 429, message="too many requests", headers={"Retry-After": "30"})
    begin = time.monotonic()
    assert "HTTP 429" in agent.refused(ref)
    assert time.monotonic() - begin < 5.0
    agent.prepare(ref)


def test_403_names_the_verb_that_is_missing_and_is_said_in_an_event(node: FlowNode, api: StubApi, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    api.fail("GET", CLAIM, 403, message=FORBIDDEN, reason="Forbidden")
    text = agent.refused(ref)
    assert "allow verb 'get' on resourceclaims.resource.k8s.io in the driver's ClusterRole" in text
    eventually(lambda: node.events(ref, "PrepareRefused") == [text])
    agent.prepare(ref)


def test_without_the_right_to_write_events_claims_are_prepared_all_the_same(
    node: FlowNode, api: StubApi, agent: Agent
) -> None:
    api.fail("POST", "/events", 403, times=None, reason="Forbidden")
    agent.refused(node.claim("gpu-0000-ff-00-0"))
    agent.prepare(node.claim(GPU_0))


def test_down_at_start_the_agent_serves_and_publishes_when_it_is_back(node: FlowNode, api: StubApi) -> None:
    ref = node.claim(GPU_0)
    with Agent(node) as agent:
        before = agent.prepare(ref)
        eventually(node.published)
    api.objects.pop("resource.k8s.io/resourceslices")
    fault = api.fail("GET", ".*", drop=True, times=None)
    with Agent(node) as agent:
        assert agent.prepare(ref) == before
        assert agent.refused(node.claim(GPU_1))
        assert not node.published()
        with api.lock:
            api.faults.remove(fault)
        eventually(node.published, 15)
        agent.unprepare(ref)


def test_upgraded_and_an_api_version_taken_away_claims_are_read_in_the_next_one(
    node: FlowNode, api: StubApi, agent: Agent
) -> None:
    agent.prepare(node.claim(GPU_0))
    api.served = ["v1beta2"]
    agent.prepare(node.claim(GPU_1))


def test_what_it_answers_is_not_believed_where_it_makes_no_sense(node: FlowNode, api: StubApi, agent: Agent) -> None:
    ref = node.claim(GPU_0)
    claim = api.list("resource.k8s.io/resourceclaims")[-1]
    for change in (
        {"status": {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "request": "r0"}]}}}},
        {"metadata": {"name": ref.name, "namespace": "default"}},
    ):
        api.fail("GET", CLAIM, 200, body=json.dumps({**claim, **change}).encode())
        assert str(ref) in agent.refused(ref)
    assert node.nothing_left()
    agent.prepare(ref)
