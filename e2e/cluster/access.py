"""How to reach the cluster's API: kubeconfig files, and the few calls that the cluster itself makes."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import ClusterError


def kubeconfig(server: str, authority: bytes, token: str, name: str) -> str:
    """JSON, which is YAML too."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"


def write_private(path: Path, text: str) -> Path:
    """Readable by its owner alone: root, or who called sudo."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    return path


class Api:
    """JSON requests with one token; no retries."""

    def __init__(self, server: str, authority: Path, token: str) -> None:
        self._server = server
        self._authority = authority
        self._token = token

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.text(method, path, body))
        return answer

    def text(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self._server + path, data=data, headers=headers, method=method)
        context = ssl.create_default_context(cafile=str(self._authority))
        # No proxy from the environment: the cluster is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(call, timeout=10) as response:
                content: bytes = response.read()
                return content.decode()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise ClusterError(f"{method} {path}: {error.code} {said[:500]}") from None
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"{method} {path} at {self._server}: {error}") from None


Request = Callable[[str, str, Mapping[str, Any] | None], dict[str, Any]]


def service_account_token(request: Request, namespace: str, name: str, node: str | None) -> str:
    """Mint a token of a ServiceAccount that exists; with `node` it carries that node's name as a claim."""
    specification: dict[str, Any] = {}
    if node is not None:
        uid = request("GET", f"/api/v1/nodes/{node}", None)["metadata"]["uid"]
        specification["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": specification}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(request("POST", path, body)["status"]["token"])


def wait(
    what: str,
    done: Callable[[], bool],
    seconds: float,
    otherwise: Callable[[], str],
    hope: Callable[[], bool] = lambda: True,
) -> None:
    """Ask until it is so; ClusterError with `otherwise()` after `seconds`, or when there is no hope left.

    An answer that fails counts as no.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if done():
                return
            last = "not yet"
        except ClusterError as error:
            last = str(error)
        if time.monotonic() > deadline or not hope():
            raise ClusterError(f"waiting for {what}: {last}; {otherwise()}")
        time.sleep(0.1)
