"""The driver's image, built by the Docker of a cluster from this checkout as a user builds it."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.steps import say, step
from e2e.installation import ROOT
from e2e.kind.docker import Docker
from e2e.kind.roots import BASE, provide_base

RECIPE = ROOT / "deploy" / "image" / "Dockerfile"
REPOSITORY = "dra-driver-e2e"
BUILD_SECONDS = 900
KEPT = "24h"  # how long a stage is of use to the next build


def build_image(docker: Docker, archive: Path) -> str:
    """Writes the image as an archive; its name, "dra-driver-e2e:<id>", so that another image has another name."""
    base = _base(docker)
    # A private Docker has no network but the machine's: packages come from PyPI.
    network = ["--network=host"] if docker.daemon is not None else []
    with step("the driver's image (deploy/image/Dockerfile)"):
        arguments = [*network, f"--build-arg=BASE={base}", f"--file={RECIPE}", str(ROOT)]
        identity = docker.run("build", "--quiet", *arguments, timeout=BUILD_SECONDS).split()[-1]
        name = f"{REPOSITORY}:{identity.removeprefix('sha256:')[:12]}"
        for older in docker.run("images", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY).split():
            if older != name:
                docker.ask("rmi", older)
        docker.run("tag", identity, name)
        if docker.daemon is not None:  # all that is in it is ours: stages of former builds, 0.8 GB each
            docker.run("image", "prune", "--force", "--filter", f"until={KEPT}")
        docker.run("save", "--output", str(archive), name)
    return name


def _base(docker: Docker) -> str:
    """The Dockerfile's own base where it is to be had."""
    found = re.search(r"^ARG BASE=(\S+)$", RECIPE.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"reading {RECIPE}: it has no line `ARG BASE=...`; give it one")
    if docker.has_image(found[1]):
        return found[1]
    if not docker.has_image(BASE.image):  # else no registry was reachable last time: not asked again and again
        say(f"pulling {found[1]}")
        pulled = docker.ask("pull", "--quiet", found[1], timeout=300)
        if pulled.returncode == 0:
            return found[1]
        say(f"  it is not to be had, so one is made: {pulled.stderr.strip()[-200:]}")
    return provide_base(docker)
