"""Kueue beside the driver: its controller as a process on a node, with its own CRDs, webhooks and rights."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from dra_driver.admission.certificates import renewed
from e2e.cluster import Process
from e2e.cluster.build import build
from e2e.cluster.golang import install_go, present_go
from e2e.cluster.parts import KUEUE, QUEUEING
from e2e.cluster.published import published
from e2e.installation import View, answers, until

NAMESPACE = "kueue-system"
ACCOUNT = "controller-manager"
RIGHTS = ("service_account", "role", "role_binding", "manager_secrets_role", "manager_secrets_role_binding")
HEALTH_PORT, WEBHOOK_PORT = 8081, 9443
CERTIFICATES = "/etc/kueue/certs"
METRICS_CERTIFICATES = "/etc/kueue/metrics/certs"  # fixed in Kueue
# Of its integrations only Jobs: others would let its webhooks have a say in what every other test does.
FRAMEWORK, WEBHOOKS = "batch/job", ("kueue-x-k8s-io", "batch-v1-job")
SETTINGS = {
    "health": {"healthProbeBindAddress": f":{HEALTH_PORT}"},
    "webhook": {"port": WEBHOOK_PORT, "certDir": CERTIFICATES},
    "internalCertManagement": {"enable": False},  # puts its certificate into a Secret, for a pod to mount
    "leaderElection": {"leaderElect": False},
    "integrations": {"frameworks": [FRAMEWORK]},
}
GATES = {"VisibilityOnDemand": False}  # an API behind the API server, for who waits before whom


class Kueue:
    """Has a say in every Job, until it is removed. Whoever queues some takes them away again, while it runs."""

    def __init__(self, view: View, node: str) -> None:
        self.on = view
        self._node = view.cluster.nodes[node]
        self._program = Path()
        self._authority = b""
        self._process: Process | None = None

    def install(self, configuration: Mapping[str, Any]) -> None:
        """`configuration` is Kueue's, as its users write it. Returns when it is ready."""
        go = present_go() or install_go()
        self._program = build(QUEUEING, go, pause=False)["kueue"]
        components = published(KUEUE, go) / "config" / "components"
        crds = _read(sorted((components / "crd" / "bases").glob("*.yaml")))
        rights = _read(components / "rbac" / f"{name}.yaml" for name in RIGHTS)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        # By the server: `kubectl apply` keeps a copy in an annotation, for which these are too long.
        text = "\n---\n".join(map(json.dumps, [namespace, *crds, *rights]))
        self.on.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        self.on.kubectl("wait", "--for=condition=Established", "crd", *(item["metadata"]["name"] for item in crds))
        self._make_certificate()
        self.start(configuration)
        self.on.apply(*(self._reached(item) for item in _read([components / "webhook" / "manifests.yaml"])))

    def start(self, configuration: Mapping[str, Any]) -> None:
        """Also in place of one that runs with another configuration."""
        self.stop()
        gates = {**configuration.get("featureGates", {}), **GATES}
        file = self.on.cluster.directory / "kueue.yaml"
        file.write_text(json.dumps({**configuration, **SETTINGS, "featureGates": gates}))
        kubeconfig = self.on.cluster.directory / "kueue.kubeconfig"
        self.on.cluster.write_kubeconfig(kubeconfig, self.on.cluster.service_account_token(NAMESPACE, ACCOUNT))
        argv = [str(self._program), f"--config={file}", f"--kubeconfig={kubeconfig}", "--zap-log-level=2"]
        self._process = self._node.start(argv, name="kueue")
        is_ready = partial(answers, self._node.address, HEALTH_PORT, "/readyz")
        until(f"Kueue to be ready (its log: {self._process.log})", is_ready, 60)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def remove(self) -> None:
        for kind in ("mutating", "validating"):  # first: then nothing is refused for want of a webhook
            name = f"{kind}-webhook-configuration"
            self.on.kubectl("delete", f"{kind}webhookconfiguration", name, "--ignore-not-found")
        self.stop()
        crds = (self.on.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") or {})["items"]
        names = [item["metadata"]["name"] for item in crds if item["spec"]["group"] == "kueue.x-k8s.io"]
        if names:
            self.on.kubectl("delete", "crd", *names)
        self.on.kubectl("delete", "clusterrole", "manager-role", "--ignore-not-found")
        self.on.kubectl("delete", "clusterrolebinding", "manager-rolebinding", "--ignore-not-found")
        self.on.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")

    def _make_certificate(self) -> None:
        material, _ = renewed(None, [self._node.address], datetime.now(UTC), timedelta(days=1), authorities_known=False)
        self._authority = material.authorities
        for directory in map(self._node.path, (CERTIFICATES, METRICS_CERTIFICATES)):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "tls.crt").write_bytes(material.certificate)
            (directory / "tls.key").write_bytes(material.key)

    def _reached(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """There is no Service before a process."""
        made = []
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            if not any(word in path for word in WEBHOOKS):
                continue
            url = f"https://{self._node.address}:{WEBHOOK_PORT}{path}"
            bundle = base64.b64encode(self._authority).decode()
            made.append({**webhook, "clientConfig": {"url": url, "caBundle": bundle}})
        return {**configuration, "webhooks": made}


def _read(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Kueue's manifests say `system` where kustomize puts the namespace."""
    text = "\n---\n".join(file.read_text() for file in files).replace("namespace: system", f"namespace: {NAMESPACE}")
    return [item for item in yaml.safe_load_all(text) if item]
