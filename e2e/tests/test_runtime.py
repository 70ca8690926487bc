"""A container runtime that reads other CDI specs. Of one that reads none: tests/deploy/test_cdi_off.py."""

from __future__ import annotations

import pytest

from e2e.by_process import ByProcess
from e2e.cluster import Unsupported
from e2e.installation import until
from e2e.objects import A100, pod, request, template
from e2e.tests.space import Space

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("agent_again")]


def test_a_pod_waits_for_a_runtime_that_reads_specs_elsewhere(space: Space) -> None:
    if not isinstance(space.on, ByProcess):
        raise Unsupported("giving a container runtime another configuration: the node's image brings it")
    node = space.on.cluster.nodes["node-b"]
    configuration = node.path("/etc/e2e/containerd.toml")
    before = configuration.read_text()
    section = '[plugins."io.containerd.cri.v1.runtime"]\n'
    assert section in before
    configuration.write_text(before.replace(section, f'{section}  cdi_spec_dirs = ["/etc/cdi"]\n'))
    node.restart_containerd()
    try:
        space.apply(template("gpu", request("gpu", A100)), pod("pod", templates=["gpu"], restart="Always"))
        words = "unresolvable CDI devices"
        until("the container to be refused", lambda: words in space.on.why("pod", space.name), 40)
    finally:
        configuration.write_text(before)
        node.restart_containerd()
    space.running("pod", seconds=60)
    assert space.gpus("pod") == space.allocated_uuids("pod")
