"""Settings of the admission webhook: the same rules as the agent's, a table of its own."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dra_driver.setting_rows import Row, dns, path, read, seconds
from dra_driver.settings import TABLE


@dataclass(frozen=True)
class WebhookSettings:
    """Values by field; the table below says what each is."""

    listen: tuple[str, int]
    driver_name: str
    tls_cert: str
    tls_key: str
    tls_secret: tuple[str, str] | None
    tls_names: tuple[str, ...]
    tls_life_s: float
    webhook_configuration: str
    check_s: float
    kubeconfig: str
    http_address: str
    log_level: str
    log_format: str


def _listen(value: str) -> tuple[str, int]:
    host, separator, port = value.rpartition(":")
    if not separator or not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ValueError("must be ADDRESS:PORT or :PORT (all addresses of both families)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _secret(value: str) -> tuple[str, str] | None:
    namespace, separator, name = value.partition("/")
    if value and not (separator and namespace and name and _is_name(namespace) and _is_name(name)):
        raise ValueError("must be NAMESPACE/NAME")
    return (namespace, name) if value else None


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name for name in (part.strip() for part in value.split(",")) if name)
    for name in names:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if not _is_name(name):
                raise ValueError(f"{name!r} is neither a DNS name nor an IP address") from None
    return names


def _is_name(text: str) -> bool:
    try:
        return bool(dns(text))
    except ValueError:
        return False


_AGENT = {row.name: row for row in TABLE}

WEBHOOK_TABLE: tuple[Row, ...] = (
    Row("listen", ":8443", "where API servers send their reviews, by HTTPS", _listen),
    _AGENT["driver_name"],
    Row("tls_cert", "", "certificate (PEM, with its chain), given and renewed by others; no rights are needed", path),
    Row("tls_key", "", "its private key (PEM)", path),
    Row(
        "tls_secret",
        "",
        "NAMESPACE/NAME of a Secret that is there: own certificates are made, kept and renewed in it",
        _secret,
    ),
    Row("tls_names", "", "names in own certificates, by commas: SERVICE.NAMESPACE.svc, or an IP address", _names),
    Row(
        "tls_life_s",
        "7776000",
        "how long an own certificate is valid; it is renewed after two thirds",
        seconds(3, 315360000),
        "s",
    ),
    Row(
        "webhook_configuration",
        "",
        "the ValidatingWebhookConfiguration whose caBundle is kept; empty: by others",
        dns,
    ),
    Row(
        "check_s",
        "60",
        "how often Secret and caBundle are compared with what they should be; two GETs",
        seconds(0.05, 86400),
        "s",
    ),
    *(_AGENT[name] for name in ("kubeconfig", "http_address", "log_level", "log_format")),
)

assert tuple(row.name for row in WEBHOOK_TABLE) == tuple(field.name for field in fields(WebhookSettings))


def load(
    flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> WebhookSettings:
    """Reads all sources; `flags` by row name, None where not given. TellUser with every mistake."""
    return WebhookSettings(**read(WEBHOOK_TABLE, flags, environment, file, check=_together, verb="webhook"))


def _together(values: Mapping[str, Any]) -> Sequence[str]:
    given, own = bool(values["tls_cert"] or values["tls_key"]), values["tls_secret"] is not None
    if given == own:
        return ["give either --tls-cert and --tls-key, or --tls-secret and --tls-names"]
    if given and not (values["tls_cert"] and values["tls_key"]):
        return ["--tls-cert and --tls-key go together"]
    if own and not values["tls_names"]:
        return ["--tls-secret needs --tls-names: what API servers call this webhook"]
    if given and values["webhook_configuration"]:
        return [
            "--webhook-configuration needs --tls-secret: who gives the certificate puts its authority into caBundle"
        ]
    return []
