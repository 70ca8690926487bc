"""How the API server is reached: address, TLS and credentials from the pod's service account or from a kubeconfig.

The kubernetes package reads kubeconfigs, and is loaded only for them: it would cost an agent in a pod, which needs three
files and two variables, 9 MiB of memory and a fifth of its start-up time.
"""

from __future__ import annotations

import os
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from dra_driver.model.errors import TellUser

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet rewrites the token file at 80 % of the token's life (hours): a minute of delay is as good as none.
TOKEN_AGE_S = 60.0
# As many prepares at once as the kubelet servers allow (32), the publisher, its watch, events, the keeper. Connections are
# made when they are needed; one more than this would be thrown away after use.
POOL_SIZE = 40


class Access:
    """One way to one API server. Made anew when credentials or certificates may have changed. `token` gives the value of the
    Authorization header, None with client certificates."""

    def __init__(
        self,
        host: str,
        pools: urllib3.PoolManager,
        token: Callable[[], str | None],
        token_age_s: float,
    ) -> None:
        self.host = host
        self.prefix: str = urlsplit(host).path.rstrip("/")
        self.pool: HTTPConnectionPool = pools.connection_from_url(host)
        self._pools = pools
        self._token = token
        self._token_age_s = token_age_s
        self._authorization: str | None = None
        self._read_again_at = 0.0

    def authorization(self) -> str | None:
        """The Authorization header, None with client certificates. The source is asked at most once in `token_age_s`."""
        now = time.monotonic()
        if now >= self._read_again_at:
            # An empty or missing file in the middle of a rotation is not news: the token at hand is still valid.
            self._authorization = self._token() or self._authorization
            self._read_again_at = now + self._token_age_s
        return self._authorization

    def close(self) -> None:
        self._pools.clear()


def from_service_account(token_age_s: float) -> Access:
    """As a pod reaches it: two variables and two files. TellUser when one is missing."""
    doing = "finding the API server from inside the cluster"
    address, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not address or not port:
        raise TellUser(
            doing,
            "KUBERNETES_SERVICE_HOST and _PORT are not set",
            "run it in a pod, or give a kubeconfig with --kubeconfig",
        )
    authority, token_file = SERVICE_ACCOUNT / "ca.crt", SERVICE_ACCOUNT / "token"
    if not authority.is_file() or not token_file.is_file():
        raise TellUser(
            doing,
            f"{SERVICE_ACCOUNT} lacks ca.crt or token",
            "set automountServiceAccountToken in the pod, or give a kubeconfig with --kubeconfig",
        )
    host = f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"
    context = tls_context(host, str(authority))
    return Access(host, _pools(address, context), lambda: bearer(token_file), token_age_s)


def _pools(address: str, context: ssl.SSLContext) -> urllib3.PoolManager:
    proxy = urllib.request.getproxies_environment().get("https")
    if proxy and not urllib.request.proxy_bypass(address):
        return urllib3.ProxyManager(proxy, maxsize=POOL_SIZE, ssl_context=context)
    return urllib3.PoolManager(maxsize=POOL_SIZE, ssl_context=context)


def bearer(file: Path) -> str | None:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return f"Bearer {token}" if token else None


def tls_context(
    host: str, authority: str | None, authority_data: str | bytes | None = None, *, verify: bool = True
) -> ssl.SSLContext:
    """One TLS context for all connections: urllib3 would parse the certificates again for each of them. It also accepts
    cluster CAs without key identifiers (EKS, MicroK8s), which Python 3.13 refuses by default."""
    try:
        context = ssl.create_default_context(cafile=authority, cadata=authority_data)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TellUser(
            f"loading the certificate authority of {host}", str(error), "check ca.crt or certificate-authority"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
