"""What a TLS server shows: contexts from PEM, and a certificate given as two files that others replace when they like."""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable

from dra_driver.admission.certificates import expiry
from dra_driver.model.errors import TellUser

log = logging.getLogger(__name__)

# (modification time, inode, size) of each file: a rotation changes one of them at least.
_State = tuple[tuple[int, int, int], ...]


def server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """OSError or ValueError when they cannot be used. The private key touches no disk."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


class FileCertificate:
    """`expires` is told the expiry (seconds since 1970) of each certificate that is taken into use."""

    def __init__(self, certificate: str, key: str, expires: Callable[[float], None]) -> None:
        self._files = (certificate, key)
        self._tell = expires
        self._lock = threading.Lock()
        self._seen: _State | None = None
        self._context: ssl.SSLContext | None = None
        self._expires = 0.0
        self._trouble = ""

    def start(self) -> None:
        """Files that are not there yet may come later: readiness says so."""
        self._look()

    def stop(self) -> None:
        pass

    def context(self) -> ssl.SSLContext:
        """Looks at the files each time: two calls of stat, and no moment at which an old certificate is shown."""
        with self._lock:
            self._look()
            if self._context is None:
                raise TellUser("showing a certificate", self._trouble, "mount a Secret of type kubernetes.io/tls")
            return self._context

    def not_ready(self) -> list[str]:
        with self._lock:
            self._look()
            if self._context is None:
                return [self._trouble]
            if self._expires <= time.time():
                return [f"the certificate {self._files[0]} expired at {_moment(self._expires)}: renew it"]
            return []

    def _look(self) -> None:
        try:
            state: _State | None = tuple(_state(file) for file in self._files)
        except OSError as error:
            self._trouble = f"looking at {error.filename}: {error.strerror}"
            return
        if state == self._seen:
            return
        self._seen = state
        try:
            certificate, key = (_read(file) for file in self._files)
            self._context = server_context(certificate, key)
            self._expires = expiry(certificate).timestamp()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            # In the middle of a rotation one file is old and one is new; the next look finds both new.
            self._trouble = f"loading {' and '.join(self._files)}: {error}"
            log.warning("%s; what was loaded before stays in use", self._trouble)
            return
        log.info("certificate loaded", extra={"file": self._files[0], "expires": _moment(self._expires)})
        self._tell(self._expires)


def _state(file: str) -> tuple[int, int, int]:
    found = os.stat(file)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read()


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
