"""What vanishes or is changed behind the agent's back is put right while it serves, and at its next start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.core.recovery import recover
from tests.flows.agent import Agent, parts_of
from tests.flows.damage import cut_off, damages
from tests.flows.node import CLAIMS, GPU_0, GPU_1, FlowNode
from tests.kube.stub_api import StubApi
from tests.kubelet.fake_kubelet import eventually


@pytest.fixture
def agent(node: FlowNode) -> Iterator[Agent]:
    with Agent(node) as running:
        yield running


@damages
def test_a_cdi_spec_that_was_changed_in_place_is_put_right(
    node: FlowNode, agent: Agent, damage: Callable[[Path], None]
) -> None:
    """Else a container of the pod could not be restarted, or would get what somebody made of it."""
    ref, other = node.claim(GPU_0), node.claim(GPU_1)
    agent.prepare(ref)
    agent.prepare(other)
    whole, untouched = node.spec_path(ref).read_bytes(), node.spec_path(other).stat()
    damage(node.spec_path(ref))
    eventually(lambda: node.spec_path(ref).read_bytes() == whole)
    assert node.spec_path(other).stat() == untouched
    agent.unprepare(ref)
    agent.unprepare(other)
    assert node.nothing_left()


def wipe_the_ledger(node: FlowNode) -> None:
    shutil.rmtree(node.directory / "run")


def test_a_ledger_that_is_wiped_under_running_pods_is_rebuilt(node: FlowNode, agent: Agent) -> None:
    ref, other = node.claim(GPU_0), node.claim(GPU_1, admin=True)
    before = agent.prepare(ref)
    agent.prepare(other)
    whole = node.spec_path(ref).read_bytes()
    wipe_the_ledger(node)
    eventually(lambda: node.wholly_prepared(ref, GPU_0) and node.wholly_prepared(other))
    assert node.spec_path(ref).read_bytes() == whole
    [message] = eventually(lambda: node.events(ref, "ClaimRebuilt"))
    assert "was damaged (it had vanished, or was empty) and was rebuilt; nothing has to be done" in message
    assert agent.prepare(ref) == before
    assert "still prepared" in agent.refused(node.claim(GPU_0))
    agent.unprepare(ref)
    agent.unprepare(other)
    assert node.nothing_left()


def test_a_ledger_wiped_while_the_agent_was_away_is_rebuilt_from_the_specs_of_claims_that_are_still_here(
    node: FlowNode, api: StubApi
) -> None:
    here, gone, elsewhere = node.claim(GPU_0), node.claim(GPU_1), node.claim(GPU_1, admin=True)
    with Agent(node) as agent:
        for ref in (here, gone, elsewhere):
            agent.prepare(ref)
    wipe_the_ledger(node)
    whole = node.spec_path(here).read_bytes()
    api.delete(CLAIMS, gone.name, gone.namespace)
    node.claim(GPU_1, uid=elsewhere.uid, name=elsewhere.name, pool="node-2")
    fault = api.fail("GET", "/resourceclaims\\?", 500, times=None)
    with Agent(node) as agent:
        eventually(lambda: api.count("GET", "/resourceclaims\\?") > 1)
        assert len(node.specs()) == 3, "pods may be running"
        agent.unprepare(gone)
        assert node.nothing_left_of(gone)
        with api.lock:
            api.faults.remove(fault)
        eventually(lambda: node.wholly_prepared(here, GPU_0) and len(node.specs()) == 1)
        assert node.spec_path(here).read_bytes() == whole
        agent.prepare(node.claim(GPU_1))


def test_how_many_records_are_damaged_is_a_metric(node: FlowNode) -> None:
    refs = node.claim(GPU_0), node.claim(GPU_1)

    def damaged() -> str:
        parts.keeper.put_back()
        lines = parts.rooms.telemetry.render().decode().splitlines()  # type: ignore[attr-defined]
        return next(line for line in lines if line.startswith("dra_driver_damaged_records "))

    with parts_of(node) as parts:
        for ref in refs:
            parts.driver.prepare_each([ref])[0]()
        assert damaged() == "dra_driver_damaged_records 0.0"
        node.record_path(refs[0]).unlink()
        cut_off(node.record_path(refs[1]))
        recover(parts.driver, parts.rooms)
        assert damaged() == "dra_driver_damaged_records 2.0"
        parts.keeper.rebuild()
        assert damaged() == "dra_driver_damaged_records 0.0"
