"""On request only (`DRA_E2E_LIVE=1`, root, apt-get): a private Docker, also one that was killed, leaves no trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.golang import cache_directory
from e2e.cluster.images import busybox_image
from e2e.cluster.limits import LIMIT
from e2e.kind.daemon import PrivateDocker, interface
from e2e.kind.docker import Docker

pytestmark = [
    pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("apt-get") is None, reason="needs root, and Debian or Ubuntu"),
]
HOST_PATHS = (
    "/etc/docker",
    "/run/docker",
    "/run/docker.sock",
    "/run/containerd",
    "/var/lib/docker",
    "/var/lib/containerd",
)


def machine(home: Path) -> dict[str, object]:
    """What it could leave behind on this machine, apart from others'."""
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return {
        "links": [link["ifname"] for link in links if link["ifname"].startswith((interface(home, "")[:7], "docker"))],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line],
        "cgroups": [str(path) for path in Path("/sys/fs/cgroup").glob("*/docker*")],
        "processes": [command for command in commands if str(home).encode() in command],
        "rules": [line for line in rules.splitlines() if "DOCKER" in line],
        "paths": [path for path in HOST_PATHS if Path(path).exists()],
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "inotify": LIMIT.read_text(),
    }


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With images of its own, so that another private Docker may run; a short path, as sockets lie in it."""
    programs = cache_directory()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="dra-") as directory:
        cache = Path(directory) / "cache"
        (cache / "dra-driver-e2e").mkdir(parents=True)
        for shared in ("bin", "packages"):
            (programs / shared).mkdir(parents=True, exist_ok=True)
            (cache / "dra-driver-e2e" / shared).symlink_to(programs / shared)
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        yield Path(directory) / "home"
        for made in Path(directory).glob("*/.docker"):  # of a test that failed half way
            PrivateDocker(made.parent).stop()


def use(docker: Docker, home: Path) -> str:
    """A container that runs, on a network; the first process of it as this host sees it."""
    archive = busybox_image().write(home / "busybox.tar")
    docker.run("load", "--input", str(archive))
    archive.unlink()
    docker.run("network", "create", "--opt", f"com.docker.network.bridge.name={interface(home, 'n')}", "n")
    docker.run("run", "--detach", "--privileged", "--network=n", "--name=sleeper", "e2e/busybox:1", "sleep", "3600")
    assert docker.run("run", "--rm", "--network=n", "e2e/busybox:1", "ping", "-c1", "sleeper")
    return Path(f"/proc/{docker.pid('sleeper')}/cmdline").read_text()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_docker_that_was_used(home: Path, killed: bool) -> None:
    before = machine(home)
    private = PrivateDocker(home)
    docker = private.start()
    assert use(docker, home) == "sleep\x003600\x00"
    assert machine(home) != before
    if killed:
        assert docker.daemon is not None
        docker.daemon.kill()
        assert private.running is None
    private.stop()
    assert machine(home) == before
    assert list(home.iterdir()) == []


def test_containers_of_a_killed_one_do_not_come_back(home: Path) -> None:
    private = PrivateDocker(home)
    docker = private.start()
    try:
        use(docker, home)
        assert docker.daemon is not None
        docker.daemon.kill()
        again = private.start()
        assert again.run("ps", "--all", "--quiet") == ""
        assert again.has_image("e2e/busybox:1")
    finally:
        private.stop()


def test_it_stays_for_whoever_holds_it_and_for_containers(home: Path) -> None:
    private = PrivateDocker(home)
    docker = private.start()
    try:
        use(docker, home)
        private.stop_unused()
        assert private.running
        docker.run("rm", "--force", "sleeper")
        private.hold()
        private.stop_unused()
        assert private.running
    finally:
        private.stop()
    assert private.running is None


def test_two_do_not_share_the_images(home: Path) -> None:
    first, second = PrivateDocker(home), PrivateDocker(home.with_name("other"))
    first.start()
    try:
        with pytest.raises(ClusterError, match="another private Docker"):
            second.start()
    finally:
        first.stop()
        second.stop()
    shutil.rmtree(home, ignore_errors=True)
