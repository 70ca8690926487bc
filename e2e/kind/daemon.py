"""A Docker of our own: dockerd in mount and process id namespaces of its own, so that its end is the end of all it started.

It makes no iptables rule, forwards nothing and has no default bridge: containers reach each other over networks that are
named, and the outside only with `--network host`. Images are kept in the cache; everything else goes when it stops, and the
one limit of the machine that it raises is as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import ClusterError, cgroups
from e2e.cluster.build import build
from e2e.cluster.capabilities import CAP_SYS_RESOURCE, may_have
from e2e.cluster.golang import cache_directory
from e2e.cluster.identity import Identity, identify
from e2e.cluster.limits import raise_inotify, restore_inotify
from e2e.cluster.parts import NODE
from e2e.cluster.prerequisites import provide
from e2e.cluster.state import exclusively
from e2e.cluster.steps import say, step
from e2e.kind.docker import Docker, digest
from e2e.kind.packages import known, unpacked

READY_SECONDS = 30
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")  # as the other cluster's nodes have them
# /proc is still the host's here, so the shell reads its own id as the host knows it, and waits until that is on record.
# Process 1 is an init: shims of containers become its children.
BIRTH = """
set -eu
read -r pid rest </proc/self/stat
echo "$pid"
read -r go
exec 9>"$1"
flock --nonblock 9 || { echo "another private Docker has $1; end it first" >&2; exit 1; }
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
shift
exec "$@" >/dev/null
"""
# Where CAP_SYS_RESOURCE is not to be had, `--privileged` asks in vain for it and every such container fails.
WITHOUT_CAPABILITY = """#!/bin/sh
strip() {{ sed -z -i -e 's/"CAP_SYS_RESOURCE"\\s*,\\s*//g' -e 's/\\s*,\\s*"CAP_SYS_RESOURCE"//g' "$1"; }}
next=
for word in "$@"; do
  [ "$next" = --bundle ] && strip "$word/config.json"
  [ "$next" = --process ] && strip "$word"
  next=$word
done
exec {runc} "$@"
"""


class PrivateDocker:
    """The private Docker of one home directory; methods work from any process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directory = home / ".docker"
        self._state = self.directory / "state.json"
        self._inotify = self.directory / "inotify"  # the limit as it was found
        self._socket = self.directory / "docker.sock"
        self._cgroup = f"docker-{digest(str(home), 4)}"  # below it every container's

    @property
    def running(self) -> Docker | None:
        init = self._init()
        if init is None or not init.alive:
            return None
        return Docker(self._bin / "docker", {"DOCKER_HOST": f"unix://{self._socket}"}, init)

    @property
    def held(self) -> bool:
        """Whether somebody asked for it for its own sake: then it outlives the clusters."""
        return (self.directory / "held").exists()

    def hold(self) -> None:
        (self.directory / "held").touch()

    def start(self) -> Docker:
        """The running one, or a new one; what a killed one left goes first."""
        with self._changing():
            if docker := self.running:
                return docker
            self._clear()
            return self._start()

    def stop_unused(self) -> None:
        """End it where no container runs and nobody holds it."""
        with self._changing():
            docker = self.running
            if docker is None or not (self.held or docker.run("ps", "--quiet")):
                self._stop(docker)

    def stop(self) -> None:
        """End it and every container of it."""
        with self._changing():
            self._stop(self.running)

    @property
    def _bin(self) -> Path:
        return self.directory / "bin"

    def _stop(self, docker: Docker | None) -> None:
        if docker is not None:
            _remove_containers(docker)
        if init := self._init():
            init.stop(20)
        self._clear()

    def _start(self) -> Docker:
        if os.geteuid() != 0:
            raise ClusterError(
                "starting a private Docker: it needs root; run it with `sudo -E`, or use a Docker that runs"
            )
        needed = [program for program in NODE if program.name in RUNTIME]
        programs = build(needed, provide(needed, to_run=True, pause=False), pause=False)
        packages = unpacked("docker", ["docker.io", *(["docker-cli"] if known("docker-cli") else [])])
        with step("private Docker"):
            self._bin.mkdir(parents=True)
            found = {
                **{name: _find(packages, name) for name in ("dockerd", "docker", "docker-proxy")},
                "docker-init": _find(packages, "tini-static", "docker-init"),
                **{name: programs[name] for name in RUNTIME},
            }
            for name, place in found.items():
                (self._bin / name).symlink_to(place)
            wrapper = self.directory / "runc-without-capability"
            wrapper.write_text(WITHOUT_CAPABILITY.format(runc=programs["runc"]))
            wrapper.chmod(0o755)
            raise_inotify(self._inotify)
            docker = self._run([str(self._bin / "docker-init"), "--", *self._command(wrapper)], packages)
            _remove_containers(docker)
        say(f"  DOCKER_HOST=unix://{self._socket}, log {self.directory / 'dockerd.log'}")
        return docker

    def _command(self, wrapper: Path) -> list[str]:
        configuration = self.directory / "daemon.json"
        configuration.write_text("{}")
        command = [
            str(self._bin / "dockerd"),
            f"--config-file={configuration}",  # else the machine's /etc/docker/daemon.json
            f"--data-root={cache_directory() / 'docker' / 'data'}",
            f"--exec-root={self.directory / 'exec'}",
            f"--pidfile={self.directory / 'dockerd.pid'}",
            f"--host=unix://{self._socket}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent=/{cgroups.subtree(self._cgroup)}",
            *(f"--{rule}=false" for rule in ("iptables", "ip6tables", "ip-forward", "ip-masq")),
            "--bridge=none",
            "--oom-score-adjust=0",
        ]
        if not may_have(CAP_SYS_RESOURCE):
            command += [f"--add-runtime=without-capability={wrapper}", "--default-runtime=without-capability"]
        return command

    def _run(self, command: list[str], packages: Path) -> Docker:
        data = cache_directory() / "docker"
        data.mkdir(parents=True, exist_ok=True)
        libraries = [str(path) for path in packages.glob("usr/lib/*-linux-gnu")]
        environment = {
            "PATH": os.pathsep.join((str(self._bin), os.environ["PATH"])),
            "HOME": str(self.directory),
            **({"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {}),
            **{name: os.environ[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") if name in os.environ},
        }
        unshare = ["setsid", "--fork", "unshare", "--mount", "--pid", "--fork"]
        log = self.directory / "dockerd.log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                [*unshare, "sh", "-c", BIRTH, "sh", str(data / "lock"), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                cwd="/",
                text=True,
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            first = process.stdout.readline().strip()
            init = identify(int(first)) if first.isdigit() else None
            if init is not None:
                self._state.write_text(json.dumps([init.pid, init.started]))
                process.stdin.write("go\n")
            process.stdin.close()
        docker = self.running
        deadline = time.monotonic() + READY_SECONDS
        while docker is None or docker.ask("version", timeout=10).returncode:
            if docker is None or not docker.daemon or not docker.daemon.alive or time.monotonic() > deadline:
                said = "\n".join(log.read_text(errors="replace").splitlines()[-6:])
                self._clear(keep_log=True)
                raise ClusterError(f"starting a private Docker: it does not answer; {log} ends with:\n{said}")
            time.sleep(0.1)
        return docker

    def _init(self) -> Identity | None:
        try:
            return Identity(*json.loads(self._state.read_text()))
        except FileNotFoundError:
            return None

    def _clear(self, *, keep_log: bool = False) -> None:
        """Whatever one that was killed left: processes, interfaces, cgroups, files."""
        if init := self._init():
            init.kill()
        if shutil.which("ip"):
            _remove_bridges(self.home)
        cgroups.remove(self._cgroup)
        restore_inotify(self._inotify)
        for path in self.directory.glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
            elif not (keep_log and path.suffix == ".log"):
                path.unlink()
        if self.directory.exists() and not keep_log:
            self.directory.rmdir()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with exclusively(self.home / ".docker.lock", "starting or ending the private Docker", patiently=True):
            yield


def interface(home: Path, network: str) -> str:
    """Name of the bridge of a network of ours; says whose it is even when its daemon is dead. The kernel's limit is 15."""
    return f"{_prefix(home)}{digest(network, 6)}"


def _prefix(home: Path) -> str:
    return f"dk{digest(str(home), 4)}-"


def _remove_bridges(home: Path) -> None:
    listed = subprocess.run(
        ["ip", "-json", "link", "show", "type", "bridge"], capture_output=True, text=True, check=False
    )
    for link in json.loads(listed.stdout or "[]"):
        if link.get("ifname", "").startswith(_prefix(home)):
            subprocess.run(["ip", "link", "delete", link["ifname"]], capture_output=True, check=False)


def _remove_containers(docker: Docker) -> None:
    """Of the last life too: nothing of them runs, and some would be started again."""
    if containers := docker.run("ps", "--all", "--quiet").split():
        docker.run("rm", "--force", "--volumes", *containers)
    docker.run("network", "prune", "--force")


def _find(packages: Path, *names: str) -> Path:
    for name in names:
        for place in (
            packages / "usr/sbin" / name,
            packages / "usr/bin" / name,
            packages / "usr/libexec/docker" / name,
        ):
            if place.exists():
                return place
        if found := shutil.which(name):
            return Path(found)
    raise ClusterError(
        f"starting a private Docker: the package docker.io has brought no {names[0]}; install Docker instead"
    )
