"""`python -m e2e.kind`: a cluster of kind, or the private Docker alone, by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from e2e.cluster import ClusterError
from e2e.cluster.options import default_home
from e2e.cluster.steps import say
from e2e.kind.daemon import PrivateDocker
from e2e.kind.docker import Docker
from e2e.kind.roots import BASE_NAME, provide_base


def main(argv: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(argv)
    try:
        return int(_VERBS[chosen.verb](chosen))
    except (ClusterError, ValueError) as error:
        say(f"{chosen.verb}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{chosen.verb}: interrupted")
        return 130


def _docker(chosen: argparse.Namespace) -> int:
    private = PrivateDocker(default_home())
    if chosen.what == "down":
        private.stop()
        say("the private Docker is gone; its images are kept in the cache")
        return 0
    docker = private.running if chosen.what == "status" else private.start()
    if docker is None:
        say("no private Docker runs")
        return 1
    if chosen.what == "up":
        private.hold()
        say(f"base image for deploy/image/Dockerfile: {BASE_NAME} is {_base(docker)}")
    for name, value in docker.settings.items():
        print(f"export {name}={value}")
    print(f"export PATH={docker.program.parent}:$PATH")
    return 0


def _base(docker: Docker) -> str:
    return docker.run("image", "inspect", "--format", "{{.RepoTags}}", provide_base(docker))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m e2e.kind", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    docker = verbs.add_parser(
        "docker", help="a Docker of our own, with a base image to build on; it stays until `down`, whatever clusters do"
    )
    docker.add_argument("what", choices=("up", "down", "status"))
    return parser


_VERBS = {"docker": _docker}

if __name__ == "__main__":
    sys.exit(main())
