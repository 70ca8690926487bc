"""The webhook's own certificate: kept in one Secret that all replicas share, renewed before its time, and its authority
put into the webhook configuration. Needs get and update on these two objects, by name.

Whoever writes the Secret first wins: the others' updates are refused for their resourceVersion, and they take what they find.
"""

from __future__ import annotations

import base64
import binascii
import copy
import datetime
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.admission.certificates import Material, expiry, renewal_due, renewed
from dra_driver.admission.tls import server_context
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser
from dra_driver.ports import ResourceApi

log = logging.getLogger(__name__)

AGAIN_S = 1.0  # after a failure, doubled up to the ordinary interval
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class OwnCertificate:
    """`secret` is (namespace, name); `configuration` the name of the webhook configuration, "" to leave that to others;
    `life_s` how long a certificate is valid, `check_s` how often both objects are looked at; `expires` is told the expiry
    (seconds since 1970) of each certificate that is taken into use."""

    def __init__(
        self,
        api: ResourceApi,
        secret: tuple[str, str],
        configuration: str,
        names: Sequence[str],
        life_s: float,
        check_s: float,
        expires: Callable[[float], None],
        now: Callable[[], datetime.datetime] = _now,
    ) -> None:
        self._api = api
        self._secret = secret
        self._path = f"/api/v1/namespaces/{secret[0]}/secrets/{secret[1]}"
        self._configuration = configuration
        self._names = names
        self._life = datetime.timedelta(seconds=life_s)
        self._check_s = check_s
        self._tell = expires
        self._now = now
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificate", daemon=True)
        self._material: Material | None = None
        self._context: ssl.SSLContext | None = None
        self._known = b""  # the authorities that were last seen in the webhook configuration
        self._trouble = "no certificate yet"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait long for a round that waits for the API server: it may end with the process after any of its steps."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def context(self) -> ssl.SSLContext:
        """RetryLater while there is none."""
        context = self._context
        if context is None:
            raise RetryLater("showing a certificate", self._trouble)
        return context

    def not_ready(self) -> list[str]:
        """Only what keeps API servers from us: trouble with renewal is logged, and is none until the certificate expires."""
        material = self._material
        if material is None or (self._configuration and not self._known):
            return [self._trouble]
        if expiry(material.certificate) <= self._now():
            return [f"the certificate has expired: {self._trouble}"]
        return []

    def round(self) -> None:
        """Reads, renews where it is time, takes into use, tells the API servers. DriverError when a step failed; what was
        in use stays in use."""
        secret = self._read(self._path)
        found = _material(secret)
        usable = self._material if found is None else found  # somebody emptied it: API servers know what we have
        known = not self._configuration or (usable is not None and self._known == usable.authorities)
        material, why = renewed(usable, self._names, self._now(), self._life, known)
        if found is None and not why:
            why = "somebody emptied the Secret, and what was in it is put back"
        if why:
            # A conflict ends this round: the next finds what the other replica wrote.
            self._api.request("PUT", self._path, body=_filled(secret, material))
            log.info("certificate written: %s", why, extra={"secret": "/".join(self._secret)})
        self._use(material)
        if self._configuration:
            self._publish(material.authorities)

    def _run(self) -> None:
        pause = AGAIN_S
        while not self._stopping.is_set():
            try:
                self.round()
                self._trouble, pause = "", AGAIN_S
                wait = self._until_due()
            except DriverError as error:
                if str(error) != self._trouble:
                    log.warning("keeping the certificate: %s", error)
                self._trouble, wait = str(error), pause
                pause = min(2 * pause, self._check_s)
            except Exception as error:
                log.exception("keeping the certificate: this is a bug, please report it with this line")
                self._trouble, wait = f"bug in the driver ({type(error).__name__})", self._check_s
            self._stopping.wait(wait)

    def _until_due(self) -> float:
        assert self._material is not None
        due = (renewal_due(self._material) - self._now()).total_seconds()
        return min(self._check_s, max(due, AGAIN_S))

    def _read(self, path: str) -> dict[str, Any]:
        try:
            return self._api.request("GET", path)
        except GiveUp as error:
            raise TellUser(
                error.doing, error.why, "it comes with the installation: repair that (helm upgrade)"
            ) from error

    def _use(self, material: Material) -> None:
        before = self._material
        if before is None or (before.certificate, before.key) != (material.certificate, material.key):
            self._context = server_context(material.certificate, material.key)
            expires = expiry(material.certificate)
            log.info("certificate in use", extra={"expires": expires.isoformat(timespec="seconds")})
            self._tell(expires.timestamp())
        self._material = material

    def _publish(self, authorities: bytes) -> None:
        path = f"{CONFIGURATIONS}/{self._configuration}"
        configuration = self._read(path)
        wanted = base64.b64encode(authorities).decode()
        changed = copy.deepcopy(configuration)
        for webhook in changed.get("webhooks") or []:
            webhook["clientConfig"]["caBundle"] = wanted
        if changed != configuration:
            self._api.request("PUT", path, body=changed)
            log.info("authority put into the webhook configuration", extra={"configuration": self._configuration})
        self._known = authorities


def _material(secret: Mapping[str, Any]) -> Material | None:
    """None when there is nothing in it yet; what is wrong in it is empty, and made anew."""
    data = secret.get("data") or {}
    return Material(*(_decoded(data.get(key)) for key in _KEYS)) if any(key in data for key in _KEYS) else None


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _filled(secret: Mapping[str, Any], material: Material) -> dict[str, Any]:
    values = (material.authorities, material.authority_key, material.certificate, material.key)
    data = {key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)}
    return {**secret, "data": {**(secret.get("data") or {}), **data}}
