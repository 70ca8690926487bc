"""OpenShift: each account may use the security context constraint that its pods need, and no other cluster sees any of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.deploy.conftest import Objects

Render = Callable[..., Objects]
OPENSHIFT = ("--api-versions", "security.openshift.io/v1")
AGENT, WEBHOOK, UNINSTALL = (f"gpu-dra-driver-{part}" for part in ("agent", "webhook", "uninstall"))


def _pod(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = objects[kind, name]["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("values", "accounts"),
    [
        ({}, {AGENT: AGENT, WEBHOOK: WEBHOOK, UNINSTALL: UNINSTALL}),
        ({"webhook": {"enabled": False}}, {AGENT: AGENT, UNINSTALL: UNINSTALL}),
        ({"uninstall": {"check": False}}, {AGENT: AGENT, WEBHOOK: WEBHOOK}),
        (
            {
                "serviceAccount": {"create": False, "name": "agents"},
                "webhook": {"serviceAccount": {"create": False, "name": "hook"}},
            },
            {AGENT: "agents", WEBHOOK: "hook", UNINSTALL: UNINSTALL},
        ),
    ],
    ids=["default", "no-webhook", "no-check", "given-accounts"],
)
def test_each_account_may_use_the_constraint_that_its_pods_need(
    render: Render, values: Mapping[str, Any], accounts: Mapping[str, str]
) -> None:
    objects = render(values, *OPENSHIFT)
    constraints = {AGENT: "privileged", WEBHOOK: "nonroot-v2", UNINSTALL: "nonroot-v2"}
    kinds = {AGENT: "DaemonSet", WEBHOOK: "Deployment", UNINSTALL: "Job"}
    added = set(objects) - set(render(values))
    assert added == {("RoleBinding", f"{part}-{constraints[part]}") for part in accounts}
    for part, account in accounts.items():
        binding = objects["RoleBinding", f"{part}-{constraints[part]}"]
        assert binding["metadata"]["namespace"] == "dra-driver"
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"system:openshift:scc:{constraints[part]}",
        }
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "dra-driver"}]
        assert _pod(objects, kinds[part], part)["serviceAccountName"] == account


def test_other_clusters_see_nothing_of_it(render: Render) -> None:
    assert "openshift" not in repr(render())


def test_the_namespace_may_be_another(render: Render) -> None:
    objects = render({"namespaceOverride": "gpus"}, *OPENSHIFT)
    for item in (item for (kind, _), item in objects.items() if kind == "RoleBinding"):
        assert item["metadata"]["namespace"] == "gpus"
        assert [subject["namespace"] for subject in item["subjects"]] == ["gpus"]


def test_that_of_the_uninstall_job_is_there_before_the_job_and_goes_with_its_account(render: Render) -> None:
    objects = render({}, *OPENSHIFT)
    binding = objects["RoleBinding", f"{UNINSTALL}-nonroot-v2"]["metadata"]["annotations"]
    assert binding == objects["ServiceAccount", UNINSTALL]["metadata"]["annotations"]
    job = objects["Job", UNINSTALL]["metadata"]["annotations"]
    assert binding["helm.sh/hook"] == job["helm.sh/hook"] == "pre-delete"
    assert int(binding["helm.sh/hook-weight"]) < int(job.get("helm.sh/hook-weight", 0))


@pytest.mark.parametrize(("kind", "name"), [("Deployment", WEBHOOK), ("Job", UNINSTALL)])
@pytest.mark.parametrize("mode", ["own", "secret"])
def test_nonroot_v2_lets_these_pods_pass(render: Render, kind: str, name: str, mode: str) -> None:
    """What OpenShift's own manifest of it (cluster-kube-apiserver-operator, scc-nonroot-v2) asks for: not root, no capability but NET_BIND_SERVICE, no escalation,
    seccomp of the runtime, nothing of the host, volumes of the API server's objects."""
    tls = {"mode": mode, "secret": {"name": "mine", "caBundle": "QUJD"}}
    pod = _pod(render({"webhook": {"tls": tls}}, *OPENSHIFT), kind, name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert {key for volume in pod.get("volumes", []) for key in volume} <= {"name", "secret"}
    for container in pod["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert not [port for port in container.get("ports", []) if "hostPort" in port]
