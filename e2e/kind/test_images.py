"""The images of the tests' pods, as on the other cluster: of this machine's files, or public ones in their place."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.build import places
from e2e.cluster.images import Image, busybox_image, glibc_image, pause
from e2e.cluster.prerequisites import busybox
from e2e.kind.docker import Docker

PUBLIC = {"e2e/busybox:1": "busybox:1.37-musl", "e2e/pause:1": "registry.k8s.io/pause:3.10"}


def write_test_images(docker: Docker, directory: Path) -> list[Path]:
    directory.mkdir()
    program = places([], "")["pause"]  # compiled where a node image was built
    own: dict[str, Image | None] = {
        "e2e/busybox:1": busybox_image() if busybox() is not None else None,
        "e2e/pause:1": pause(program) if program.exists() else None,
        "e2e/glibc:1": glibc_image(),
    }
    archives = []
    for number, (tag, image) in enumerate(own.items()):
        archive = directory / f"{number}.tar"
        archives.append(image.write(archive) if image is not None else _pulled(docker, tag, archive))
    return archives


def _pulled(docker: Docker, tag: str, archive: Path) -> Path:
    try:
        docker.run("pull", "--quiet", PUBLIC[tag], timeout=300)
    except ClusterError as error:
        raise ClusterError(
            f"making image {tag}: install busybox-static and gcc, or let Docker reach a registry ({error})"
        ) from None
    docker.run("tag", PUBLIC[tag], tag)
    docker.run("save", "--output", str(archive), tag)
    return archive
