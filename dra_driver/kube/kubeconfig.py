"""Reaching the API server by a kubeconfig, as the kubernetes package reads it: contexts, files, exec plug-ins, proxies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import kube_config
from kubernetes.config.config_exception import ConfigException

from dra_driver.kube.access import POOL_SIZE, Access, bearer, tls_context
from dra_driver.model.errors import TellUser


def from_kubeconfig(path: str, token_age_s: float) -> Access:
    """`path` may be several with `:`. TellUser when it cannot be used."""
    configuration = Configuration()
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = POOL_SIZE
    configuration.retries = False  # urllib3 would otherwise wait out a 429 silently, up to three times
    token = _load(configuration, path)
    client = ApiClient(configuration)
    pools = client.rest_client.pool_manager
    if configuration.host.startswith("https"):
        _share_tls(pools, configuration)
    return Access(configuration.host, pools, token, token_age_s)


def _load(configuration: Configuration, path: str) -> Callable[[], str | None]:
    doing = f"reading kubeconfig {path}"
    try:
        kube_config.load_kube_config(path, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        token_file = _token_file(path)
    except ConfigException as error:
        raise TellUser(doing, str(error), "give the path of a kubeconfig whose current context is complete") from error
    except Exception as error:  # yaml, base64, OS and exec plug-ins: all mean that this file cannot be used
        raise TellUser(doing, f"{type(error).__name__}: {error}", "check the file and who may read it") from error
    if token_file is not None:
        return lambda: bearer(token_file)

    def token() -> str | None:
        try:
            key = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # the refresh hook runs exec plug-ins and HTTP calls of its own
            raise TellUser(doing, f"the credential could not be renewed: {error}", "check the exec plug-in") from error
        return str(key) if key else None

    return token


def _token_file(path: str) -> Path | None:
    """The `tokenFile` of the current user, which the kubernetes package reads once and never again."""
    merged = kube_config.KubeConfigMerger(path)  # type: ignore[no-untyped-call]
    loader = kube_config.KubeConfigLoader(config_dict=merged.config, config_base_path=None)  # type: ignore[no-untyped-call]
    user = loader._user  # the merged view of several files is to be had nowhere else
    if user is None or "tokenFile" not in user or "token" in user:
        return None
    return Path(os.path.dirname(os.path.abspath(user.path or path)), str(user["tokenFile"]))


def _share_tls(pools: urllib3.PoolManager, configuration: Configuration) -> None:
    verify = bool(configuration.verify_ssl)
    context = tls_context(configuration.host, configuration.ssl_ca_cert, configuration.ca_cert_data, verify=verify)
    if configuration.cert_file:
        try:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise TellUser(
                f"loading the client certificate for {configuration.host}",
                str(error),
                "check client-certificate and client-key",
            ) from error
    pools.connection_pool_kw["ssl_context"] = context
    for loaded in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        pools.connection_pool_kw.pop(loaded, None)
