"""The kernel kills the agent for want of memory. In a pod: tests/deploy/test_faults.py."""

from __future__ import annotations

import os
import signal

import pytest

from e2e.by_process import ByProcess
from e2e.cluster import Unsupported
from e2e.installation import until
from e2e.objects import A100, pod, request, template
from e2e.tests import memory
from e2e.tests.space import Space

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]
LIMIT = 32 << 20


def test_an_agent_killed_for_want_of_memory_while_it_prepares_loses_nothing_and_leaks_nothing(space: Space) -> None:
    if not isinstance(space.on, ByProcess):
        raise Unsupported("limiting the memory of an agent: in a pod it has the limit of its container")
    node, machine, agent = space.on.cluster.nodes["node-b"], space.on.machine("node-b"), space.on.agents["node-b"]
    space.run("before", A100)
    said = space.listen("node-b")
    with memory.made(f"dra-e2e-oom-{os.getpid()}", LIMIT) as group:
        group.take(agent.pid)
        machine.delay_call("nvmlDeviceGetUUID", 2.0)
        filler = node.path("/run/filler")
        try:
            space.apply(template("gpu", request("gpu", A100)), pod("during", templates=["gpu"]))
            until("the claim to be on record", lambda: len(space.records("node-b")) == 2, 30, every=0.02)
            group.fill(filler, agent.pid)
            assert agent.wait(20) == -signal.SIGKILL
            assert group.oom_kills() >= 1
        finally:
            machine.heal()
            filler.unlink(missing_ok=True)
            agent.kill()  # whatever went wrong: the cgroup can go
    assert "prepared" not in [line["msg"] for line in said()]
    assert len(space.records("node-b")) == 2
    assert space.gpus_now("before") == space.allocated_uuids("before")
    space.on.start_agent("node-b")
    space.poke("during")
    space.running("during")
    assert space.gpus("during") == space.allocated_uuids("during")
    assert space.gpus("during").isdisjoint(space.gpus_now("before"))
    for name in ("before", "during"):
        space.delete("pod", name)
    until("both records to go", lambda: not space.leftovers(), 60)
