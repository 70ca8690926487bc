"""On which nodes agents run, judged as a scheduler judges node affinity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.deploy.conftest import Objects, agent_pod

LINUX = {"kubernetes.io/os": "linux"}
NFD = {**LINUX, "feature.node.kubernetes.io/kernel-version.full": "6.8.0"}


def _holds(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    def met(expression: Mapping[str, Any], of: Mapping[str, str]) -> bool:
        value = of.get(expression["key"])
        return {
            "In": value in expression.get("values", ()),
            "NotIn": value not in expression.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression["operator"]]

    return all(met(item, labels) for item in term.get("matchExpressions", ())) and all(
        met(item, {"metadata.name": name}) for item in term.get("matchFields", ())
    )


def runs(objects: Objects, labels: Mapping[str, str], name: str = "node-a") -> bool:
    affinity = agent_pod(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(_holds(term, labels, name) for term in affinity["nodeSelectorTerms"])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (LINUX, True),  # nobody labels nodes here: the agent finds out
        (NFD, False),  # NFD has looked and found no GPU
        ({**NFD, "feature.node.kubernetes.io/pci-10de.present": "true"}, True),
        ({**NFD, "feature.node.kubernetes.io/pci-0302_10de.present": "true"}, True),
        ({**NFD, "feature.node.kubernetes.io/pci-0300_10de.present": "true"}, True),
        ({**NFD, "feature.node.kubernetes.io/pci-0300_1002.present": "true"}, False),
        ({**NFD, "nvidia.com/gpu.present": "true"}, True),
        ({**NFD, "nvidia.com/gpu.present": "false"}, False),
        ({**NFD, "cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, True),
        ({**NFD, "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, True),
        ({**NFD, "karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, False),
        ({**LINUX, "eks.amazonaws.com/compute-type": "fargate"}, False),
        ({**LINUX, "type": "virtual-kubelet"}, False),
        ({"kubernetes.io/os": "windows"}, False),
    ],
)
def test_agents_run_where_gpus_are_or_may_be(
    render: Callable[..., Objects], labels: Mapping[str, str], expected: bool
) -> None:
    assert runs(render(), labels) is expected


def test_simulated_gpus_are_on_all_nodes_or_on_those_that_are_named(render: Callable[..., Objects]) -> None:
    everywhere = render({"simulation": {"machine": "t4", "machines": {"node-a": "dgx-h100"}}})
    assert runs(everywhere, NFD, "node-b")
    named = render({"simulation": {"machines": {"node-a": "dgx-h100", "10.0.0.1": "t4"}}})
    assert [runs(named, LINUX, name) for name in ("node-a", "10.0.0.1", "node-b")] == [True, True, False]
