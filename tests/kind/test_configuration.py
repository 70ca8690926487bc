from __future__ import annotations

import json

import pytest

from e2e.cluster import ClusterError, Options, Unsupported
from e2e.kind import configuration
from e2e.kind.cluster import refuse


def test_workers_have_the_names_of_the_options_in_kubernetes() -> None:
    text = configuration.cluster(["node-a", "node-b"], {}, official=True, unified_cgroups=True)
    control_plane, *workers = json.loads(text)["nodes"]
    assert control_plane == {"role": "control-plane"}
    names = [json.loads(worker["kubeadmConfigPatches"][0])["nodeRegistration"]["name"] for worker in workers]
    assert names == ["node-a", "node-b"]
    assert list(configuration.containers("kind-demo", names).values()) == ["kind-demo-worker", "kind-demo-worker2"]


def test_an_image_of_ours_has_no_kindnet_and_no_iptables_for_kube_proxy() -> None:
    ours = json.loads(configuration.cluster(["a"], {"Gate": True}, official=False, unified_cgroups=False))
    assert ours["networking"] == {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    assert ours["featureGates"] == {"Gate": True}
    assert json.loads(ours["kubeadmConfigPatches"][0])["failCgroupV1"] is False
    theirs = json.loads(configuration.cluster(["a"], {}, official=True, unified_cgroups=True))
    assert "networking" not in theirs
    assert "failCgroupV1" not in theirs["kubeadmConfigPatches"][0]


@pytest.mark.parametrize(
    "options",
    [
        Options(nodes=()),
        Options(nodes=tuple(f"n{number}" for number in range(8))),
        Options(emulate="1.34"),
        Options(served=("v1beta1",)),
        Options(nodes=("a",), containerd17={"a": True}),
    ],
    ids=["no node", "eight nodes", "emulated", "served", "containerd 1.7"],
)
def test_what_kind_cannot_do_is_refused_with_another_way(options: Options) -> None:
    with pytest.raises(ClusterError, match="use the cluster of processes"):
        refuse(options)


def test_an_older_api_is_no_mistake_but_unsupported() -> None:
    with pytest.raises(Unsupported):
        refuse(Options(emulate="1.35"))
