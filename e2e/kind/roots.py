"""Debian roots as Docker images, made by debootstrap where no registry is reachable: what images are built from here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.golang import cache_directory
from e2e.cluster.steps import step
from e2e.kind.docker import Docker, digest
from e2e.kind.packages import unpacked

SUITE = "bookworm"  # Debian 12: its systemd 252 is the last that boots on cgroup version 1
MIRROR = "http://deb.debian.org/debian"
KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
SUPERFLUOUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
)


@dataclass(frozen=True, slots=True)
class Root:
    name: str  # "dra-driver-base"
    packages: Sequence[str]  # beside those of Debian's minimal variant
    links: Sequence[tuple[str, str]] = ()  # (path, target)

    @property
    def image(self) -> str:
        """Changes with whatever it is made of."""
        return f"{self.name}:{SUITE}-{digest(repr((SUITE, self.packages, self.links, SUPERFLUOUS)), 10)}"


# What the project's own Dockerfile builds on: the place of python:slim.
BASE = Root(
    "dra-driver-base",
    ("ca-certificates", "python3", "python3-pip", "python3-venv"),
    (("usr/bin/python", "python3"),),  # a name that python:slim has
)
BASE_NAME = "dra-driver-base:local"
# The packages of kind's own images/base/Dockerfile, less those for storage on other machines.
NODE = Root(
    "dra-driver-node-root",
    (
        *("systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod"),
        *("libseccomp2", "bash", "ca-certificates", "curl", "jq", "procps"),
    ),
)


def provide_root(docker: Docker, root: Root) -> str:
    """The image of a root; made where this Docker has none."""
    if docker.has_image(root.image):
        return root.image
    if os.geteuid() != 0:
        raise ClusterError(f"making {root.image}: debootstrap needs root; run it with `sudo -E`")
    tool = _debootstrap()
    with (
        step(f"{root.image}: Debian {SUITE} with {len(root.packages)} packages more, from {MIRROR}"),
        tempfile.TemporaryDirectory(dir=_workshop(), prefix=".unfinished-") as directory,
    ):
        target = Path(directory) / "root"
        tool.make(root.packages, target)
        for path in SUPERFLUOUS:
            shutil.rmtree(target / path, ignore_errors=True)
            (target / path).mkdir(parents=True, exist_ok=True)
        for path, to in root.links:
            (target / path).symlink_to(to)
        for marker in target.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()  # in an image pip may install
        if (
            AUTHORITIES.exists()
        ):  # whom this machine trusts: packages may come through a proxy with an authority of its own
            shutil.copy(AUTHORITIES, target / AUTHORITIES.relative_to("/"))
        _import(docker, target, root.image)
    return root.image


def provide_base(docker: Docker) -> str:
    """The base image for the project's Dockerfile, under a name that does not change."""
    docker.run("tag", provide_root(docker, BASE), BASE_NAME)
    return BASE_NAME


@dataclass(frozen=True, slots=True)
class _Debootstrap:
    program: str
    environment: dict[str, str]
    keys: Path

    def make(self, packages: Sequence[str], target: Path) -> None:
        log = target.with_suffix(".log")
        options = [f"--keyring={self.keys}", "--variant=minbase", f"--include={','.join(packages)}"]
        command = [self.program, *options, SUITE, str(target), MIRROR]
        with log.open("w") as output:
            done = subprocess.run(command, stdout=output, stderr=output, env=self.environment, check=False)
        if done.returncode:
            said = log.read_text(errors="replace").splitlines()[-5:]
            raise ClusterError(
                f"making a Debian root with `{' '.join(command)}`: {' | '.join(said)}; "
                f"check that {MIRROR} is reachable, or bring Docker a registry that is"
            )


def _debootstrap() -> _Debootstrap:
    """This machine's own, or one that is fetched; the same for the archive's keys."""
    program, keys = shutil.which("debootstrap"), Path("/") / KEYRING
    if program is not None and keys.exists():
        return _Debootstrap(program, {**os.environ}, keys)
    fetched = unpacked("debootstrap", ["debootstrap", "debian-archive-keyring"])
    keys = keys if keys.exists() else fetched / KEYRING
    if program is not None:
        return _Debootstrap(program, {**os.environ}, keys)
    scripts = {"DEBOOTSTRAP_DIR": str(fetched / "usr/share/debootstrap")}
    return _Debootstrap(str(fetched / "usr/sbin/debootstrap"), {**os.environ, **scripts}, keys)


def _import(docker: Docker, root: Path, image: str) -> None:
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with subprocess.Popen(
        [str(docker.program), "import", "--change", path, "--change", 'CMD ["bash"]', "-", image],
        env=docker.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as importing:
        assert importing.stdin is not None
        assert importing.stderr is not None
        with importing.stdin as pipe, tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            tar.add(root, arcname=".", filter=_by_number)
        said = importing.stderr.read().decode(errors="replace")
    if importing.returncode:
        raise ClusterError(f"importing {image} into Docker: {said.strip()[-500:]}")


def _by_number(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uname = entry.gname = ""  # this machine may call the same numbers otherwise
    return entry


def _workshop() -> Path:
    directory = cache_directory() / "roots"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
