"""The admission webhook as processes on this host, which API servers reach by its address, with the rights of the manifests."""

from __future__ import annotations

import base64
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.cluster import ClusterError
from e2e.installation import MANIFESTS, ROOT, View, documents, until

NAME = "dra-driver-webhook"
NAMESPACE = "dra-driver"
PORT = 9443
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}-tls"


class Webhook:
    """`directory` gets its logs and its kubeconfig."""

    def __init__(self, view: View, directory: Path) -> None:
        self.on = view
        self._directory = directory
        self.kubeconfig = directory / "webhook.kubeconfig"
        self.address = own_address(str(urlsplit(view.cluster.server).hostname))
        self.objects = [self._reached(item) for item in documents((MANIFESTS / "webhook.yaml").read_text())]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def _reached(self, item: dict[str, Any]) -> dict[str, Any]:
        """There is no Service before processes."""
        for webhook in item.get("webhooks", ()):
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://{self.address}:{PORT}{path}"
        return item

    def install(self) -> None:
        self.on.apply(*self.objects)
        self.start()

    def start(self, port: int = PORT, *more: str) -> None:
        """Returns when API servers can reach it; `more` are more flags."""
        self.on.cluster.write_kubeconfig(self.kubeconfig, until("the service account", self._token, 30))
        flags = {
            "listen": f"{self.address}:{port}",
            "tls-secret": f"{NAMESPACE}/{NAME}-tls",
            "tls-names": self.address,
            "webhook-configuration": NAME,
            "check-s": "0.5",
            "kubeconfig": str(self.kubeconfig),
        }
        argv = [sys.executable, "-m", "dra_driver.cli.main", "webhook"]
        argv += [f"--{name}={value}" for name, value in flags.items()]
        argv += more
        with (self._directory / f"webhook-{port}.log").open("ab") as log:
            self._running[port] = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)
        until(f"the certificate of the webhook on port {port}", lambda: self.certificate(port), 30)
        until("the authority in the configuration", self.is_known, 30)

    def _token(self) -> str | None:
        try:
            return self.on.cluster.service_account_token(NAMESPACE, NAME)
        except ClusterError:
            return None

    def stop(self, port: int = PORT) -> int:
        process = self._running.pop(port)
        process.send_signal(signal.SIGTERM)
        return process.wait(30)

    def remove(self) -> None:
        self.on.delete("validatingwebhookconfiguration", NAME)  # first: nothing is refused for want of a webhook
        for port in list(self._running):
            self.stop(port)
        for item in self.objects:
            self.on.delete(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "default"))

    def secret(self) -> dict[str, bytes]:
        data = self.on.cluster.request("GET", SECRET).get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}

    def bundle(self) -> bytes:
        (entry,) = self.on.cluster.request("GET", CONFIGURATION)["webhooks"]
        return base64.b64decode(entry["clientConfig"].get("caBundle", ""))

    def is_known(self) -> bool:
        authority = self.secret().get("ca.crt")
        return bool(authority) and self.bundle() == authority

    def certificate(self, port: int = PORT) -> dict[str, Any] | None:
        """What the webhook shows to who believes the authority in the Secret; None where it shows nothing."""
        authority = self.secret().get("ca.crt")
        if not authority:
            return None
        context = ssl.create_default_context(cadata=authority.decode())
        try:
            with (
                socket.create_connection((self.address, port), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=self.address) as secure,
            ):
                return dict(secure.getpeercert() or {})
        except OSError:
            return None


def own_address(towards: str) -> str:
    """The address of this host that somebody else sees it by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as never_used:
        never_used.connect((towards, 9))
        return str(never_used.getsockname()[0])
