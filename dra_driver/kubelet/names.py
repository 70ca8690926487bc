"""Every socket path and name that the kubelet and this driver share, in one place.

    data directory        <plugins>/<driver>
    lock                  <data>/sockets.lock
    DRA socket            <data>/dra.sock                                 without instance
                          <data>/dra-<instance>.sock                      with instance (rolling update)
                          <data>/dra-<h6(instance)>.sock                  if that is too long
    registration socket   <registry>/<driver>-reg.sock                    without instance
                          <registry>/<driver>-<instance>-reg.sock         with instance
                          <registry>/<driver>-<h8(instance)>-reg.sock     if that is too long
                          <registry>/dra-<h16(driver NUL instance)>-reg.sock   if that is too long as well
    before publication    <data or registry>/.dra-xxx, renamed to its name once it answers

`instance` is the pod UID; h6, h8 and h16 are the first 6, 8 and 16 bytes of the SHA-256, base64url without padding. The
registration names are those of Kubernetes' kubeletplugin 1.37 (up to 1.36 it had the first form only). The hashed DRA
socket is ours: the kubelet is told its path, and with 6 bytes the longest driver name fits below /var/lib/kubelet/plugins.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_driver.model.errors import TellUser

# sockaddr_un.sun_path has 108 bytes, the last of them NUL.
MAX_SOCKET_PATH_BYTES = 107

_DRIVER = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_MAX_DRIVER_LENGTH = 63
_INSTANCE = re.compile(r"^[A-Za-z0-9][-A-Za-z0-9._]*$")
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UNPUBLISHED = re.compile(r"^\.dra-[-_A-Za-z0-9]{3}$")
_INSTANCE_DRA_SOCKET = re.compile(rf"^dra-{_UUID}\.sock$")


@dataclass(frozen=True, slots=True)
class SocketNames:
    """All paths of one instance of the driver, absolute if the directories given were."""

    driver: str
    data_dir: Path
    registry_dir: Path
    dra_socket: Path
    registration_socket: Path

    @property
    def lock_file(self) -> Path:
        """Held (flock) while a socket is put in place or taken away; shared by all instances of the driver."""
        return self.data_dir / "sockets.lock"

    def is_of_an_instance(self, path: Path) -> bool:
        """True for socket paths that only instances of this driver make: such a one is litter once nobody answers.

        Hashed names do not tell whose they are and are left alone, as is the registration socket of another driver.
        """
        if path.parent == self.data_dir:
            return bool(_INSTANCE_DRA_SOCKET.match(path.name) or _UNPUBLISHED.match(path.name))
        return bool(re.match(rf"^{re.escape(self.driver)}-{_UUID}-reg\.sock$", path.name))


def socket_names(driver: str, plugins_dir: Path, registry_dir: Path, instance: str | None = None) -> SocketNames:
    """Where the driver called `driver` has its sockets; touches no file.

    `plugins_dir` and `registry_dir` are the kubelet's (`/var/lib/kubelet/plugins`, `.../plugins_registry`), `instance`
    the pod UID or None for the only instance on the node. TellUser when a name is malformed or a path too long.
    """
    if len(driver) > _MAX_DRIVER_LENGTH or not _DRIVER.match(driver):
        raise TellUser(
            f"naming the sockets of driver {driver!r}",
            f"a driver name is a DNS subdomain of at most {_MAX_DRIVER_LENGTH} characters",
            "correct the driver name, for example gpu.nvidia.com",
        )
    if instance is not None and not _INSTANCE.match(instance):
        raise TellUser(
            f"naming the sockets of instance {instance!r}",
            "an instance name has letters, digits, '-', '.' and '_' only",
            "set the instance (POD_UID) to metadata.uid of the pod",
        )
    data_dir = plugins_dir / driver
    if instance is None:
        dra, registration = ["dra.sock"], [f"{driver}-reg.sock"]
    else:
        dra = [f"dra-{instance}.sock", f"dra-{_short_hash(instance, 6)}.sock"]
        registration = [
            f"{driver}-{instance}-reg.sock",
            f"{driver}-{_short_hash(instance, 8)}-reg.sock",
            f"dra-{_short_hash(driver + chr(0) + instance, 16)}-reg.sock",
        ]
    return SocketNames(
        driver=driver,
        data_dir=data_dir,
        registry_dir=registry_dir,
        dra_socket=_first_that_fits("DRA socket", data_dir, dra),
        registration_socket=_first_that_fits("registration socket", registry_dir, registration),
    )


def unpublished(path: Path) -> Path:
    """A name beside `path`, and no longer than it, under which a socket is made before it is renamed to `path`.

    The kubelet ignores names that begin with a dot. Random, so that no other process has it: gRPC deletes a socket that
    it finds under the name, and deletes the name again when it stops.
    """
    return path.with_name(f".dra-{secrets.token_urlsafe(3)[:3]}")


def _short_hash(text: str, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:length]).rstrip(b"=").decode()


def _first_that_fits(what: str, directory: Path, names: Sequence[str]) -> Path:
    for name in names:
        path = directory / name
        size = len(os.fsencode(path))
        if size <= MAX_SOCKET_PATH_BYTES:
            return path
    over = size - MAX_SOCKET_PATH_BYTES
    raise TellUser(
        f"naming the {what} {path}",
        f"the path has {size} bytes and the kernel takes at most {MAX_SOCKET_PATH_BYTES}: {over} too many",
        f"use a directory whose path is {over} bytes shorter than {directory}, or a shorter driver name",
    )
