"""The images of the tests' pods, as on the other cluster; from this machine's files, or busybox's own image."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.images import busybox_image, glibc_image
from e2e.cluster.prerequisites import busybox
from e2e.kind.docker import Docker

BUSYBOX = "busybox:1.37-musl"
TAG = "e2e/busybox:1"


def write_test_images(docker: Docker, directory: Path) -> list[Path]:
    directory.mkdir()
    return [_busybox(docker, directory / "busybox.tar"), glibc_image().write(directory / "glibc.tar")]


def _busybox(docker: Docker, archive: Path) -> Path:
    if busybox() is not None:
        return busybox_image().write(archive)
    try:
        docker.run("pull", "--quiet", BUSYBOX, timeout=300)
    except ClusterError as error:
        raise ClusterError(
            f"making image {TAG}: install busybox-static, or let Docker reach a registry ({error})"
        ) from None
    docker.run("tag", BUSYBOX, TAG)
    docker.run("save", "--output", str(archive), TAG)
    return archive
