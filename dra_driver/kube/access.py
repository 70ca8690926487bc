"""How the API server is reached: address, TLS and credentials from a kubeconfig or from the pod's service account."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from urllib3.connectionpool import HTTPConnectionPool

from dra_driver.model.errors import TellUser

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet rewrites the token file at 80 % of the token's life (hours): a minute of delay is as good as none.
TOKEN_AGE_S = 60.0
# Eight prepares at once, the publisher, its watch, events; one more and a connection is made and thrown away.
POOL_SIZE = 16


class Access:
    """One way to one API server. Made anew when credentials or certificates may have changed."""

    def __init__(self, client: ApiClient, token: Callable[[], str | None], token_age_s: float) -> None:
        self.host: str = client.configuration.host
        self.prefix: str = urlsplit(self.host).path.rstrip("/")
        self.pool: HTTPConnectionPool = client.rest_client.pool_manager.connection_from_url(self.host)
        self._client = client
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
        self._client.close()  # type: ignore[no-untyped-call]


def reach(kubeconfig: str | None, token_age_s: float = TOKEN_AGE_S) -> Access:
    """`kubeconfig` is a path (several with `:`); None means in-cluster. TellUser when neither can be used."""
    configuration = Configuration()
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = POOL_SIZE
    configuration.retries = False  # urllib3 would otherwise wait out a 429 silently, up to three times
    token = _from_kubeconfig(configuration, kubeconfig) if kubeconfig else _from_service_account(configuration)
    client = ApiClient(configuration)
    if configuration.host.startswith("https"):
        _share_tls(client, configuration)
    return Access(client, token, token_age_s)


def _from_service_account(configuration: Configuration) -> Callable[[], str | None]:
    # Not load_incluster_config: it keeps a trailing newline in the header and fails on an empty file mid-rotation.
    doing = "finding the API server from inside the cluster"
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
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
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(authority)
    return lambda: _bearer(token_file)


def _from_kubeconfig(configuration: Configuration, path: str) -> Callable[[], str | None]:
    from kubernetes.config import kube_config
    from kubernetes.config.config_exception import ConfigException

    doing = f"reading kubeconfig {path}"
    try:
        kube_config.load_kube_config(path, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        token_file = _token_file(path)
    except ConfigException as error:
        raise TellUser(doing, str(error), "give the path of a kubeconfig whose current context is complete") from error
    except Exception as error:  # yaml, base64, OS and exec plug-ins: all mean that this file cannot be used
        raise TellUser(doing, f"{type(error).__name__}: {error}", "check the file and who may read it") from error
    if token_file is not None:
        return lambda: _bearer(token_file)

    def token() -> str | None:
        try:
            key = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # the refresh hook runs exec plug-ins and HTTP calls of its own
            raise TellUser(doing, f"the credential could not be renewed: {error}", "check the exec plug-in") from error
        return str(key) if key else None

    return token


def _token_file(path: str) -> Path | None:
    """The `tokenFile` of the current user, which the kubernetes package reads once and never again."""
    from kubernetes.config import kube_config

    merged = kube_config.KubeConfigMerger(path)  # type: ignore[no-untyped-call]
    loader = kube_config.KubeConfigLoader(config_dict=merged.config, config_base_path=None)  # type: ignore[no-untyped-call]
    user = loader._user  # the merged view of several files is to be had nowhere else
    if user is None or "tokenFile" not in user or "token" in user:
        return None
    return Path(os.path.dirname(os.path.abspath(user.path or path)), str(user["tokenFile"]))


def _bearer(file: Path) -> str | None:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return f"Bearer {token}" if token else None


def _share_tls(client: ApiClient, configuration: Configuration) -> None:
    """One TLS context for all connections: urllib3 would parse the certificates again for each of them. It also accepts
    cluster CAs without key identifiers (EKS, MicroK8s), which Python 3.13 refuses by default."""
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TellUser(
            f"loading the certificates for {configuration.host}",
            str(error),
            "check certificate-authority, client-certificate and client-key",
        ) from error
    pool = client.rest_client.pool_manager.connection_pool_kw
    pool["ssl_context"] = context
    for loaded in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        pool.pop(loaded, None)
