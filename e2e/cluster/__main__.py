"""Command line of the cluster: `python -m e2e.cluster up --name demo`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence

from e2e.cluster import ClusterError
from e2e.cluster.build import build
from e2e.cluster.options import Options
from e2e.cluster.parts import PROGRAMS
from e2e.cluster.prerequisites import provide
from e2e.cluster.running import RunningCluster, node_ready
from e2e.cluster.steps import say


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        return int(_VERBS[chosen.verb](chosen))
    except (ClusterError, ValueError) as error:
        say(f"{chosen.verb}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{chosen.verb}: interrupted")
        return 130


def _up(chosen: argparse.Namespace) -> int:
    options = Options(
        name=chosen.name,
        nodes=tuple(f"node-{number + 1}" for number in range(chosen.nodes)),
        emulate=chosen.emulate,
        served=tuple(chosen.served.split(",")) if chosen.served else None,
        feature_gates=dict(map(_gate, chosen.feature_gate)),
    )
    started = time.monotonic()
    cluster = RunningCluster(options)
    cluster.up()
    say(f"{options.name} is up after {time.monotonic() - started:.0f} s")
    say(f"API server {cluster.server}, logs below {cluster.directory}")
    say(f"kubectl of its version: {cluster.kubectl}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0


def _down(chosen: argparse.Namespace) -> int:
    cluster = RunningCluster(Options(name=chosen.name))
    cluster.down(keep_logs=chosen.keep_logs)
    say(f"{chosen.name} is down" + (f"; its logs are below {cluster.directory}" if chosen.keep_logs else ""))
    return 0


def _status(chosen: argparse.Namespace) -> int:
    cluster = _running(chosen.name)
    for part, runs in cluster.parts().items():
        print(f"{part:20} {'runs' if runs else 'is stopped'}")
    nodes = cluster.request("GET", "/api/v1/nodes")["items"] if cluster.parts()["apiserver"] else []
    ready = {node["metadata"]["name"]: node_ready(node) for node in nodes}
    for name, node in cluster.nodes.items():
        print(f"{name:20} {'Ready' if ready.get(name) else 'not Ready'}, {node.address}, logs in {node.logs}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0


def _kubectl(chosen: argparse.Namespace) -> int:
    cluster = _running(chosen.name)
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    os.execv(cluster.kubectl, [str(cluster.kubectl), *chosen.argv])


def _run(chosen: argparse.Namespace) -> int:
    """In place of this process, so that a terminal stays a terminal."""
    nodes = _running(chosen.name).nodes
    if chosen.node not in nodes:
        raise ClusterError(f"running a command on {chosen.node}: the nodes are {', '.join(nodes)}")
    argv = nodes[chosen.node].inside(chosen.argv or ["sh"])
    os.execvp(argv[0], argv)


def _build(chosen: argparse.Namespace) -> int:
    build(PROGRAMS, provide(PROGRAMS, to_run=False))
    return 0


def _running(name: str) -> RunningCluster:
    cluster = RunningCluster(Options(name=name))
    if not cluster.directory.exists():
        raise ClusterError(f"looking for cluster {name}: {cluster.directory} is not there; bring it up first")
    return cluster


def _gate(text: str) -> tuple[str, bool]:
    name, _, value = text.partition("=")
    if value not in ("true", "false"):
        raise ValueError(f"reading feature gate {text!r}: write NAME=true or NAME=false")
    return name, value == "true"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m e2e.cluster", description="A real Kubernetes cluster, no Docker.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="demo", help="clusters of different names live side by side (default: demo)")
    up = verbs.add_parser("up", parents=[named], help="build what is not cached, start it, wait until it is usable")
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="0: a control plane only (default: 2)")
    up.add_argument("--emulate", metavar="1.34", help="serve the API of an older release")
    up.add_argument("--served", metavar="v1beta1,...", help="versions of resource.k8s.io to serve, no others")
    up.add_argument("--feature-gate", action="append", default=[], metavar="NAME=true", help="for every component")
    down = verbs.add_parser("down", parents=[named], help="end and remove everything")
    down.add_argument("--keep-logs", action="store_true")
    verbs.add_parser("status", parents=[named], help="what runs")
    kubectl = verbs.add_parser("kubectl", parents=[named], help="run kubectl as admin")
    kubectl.add_argument("argv", nargs=argparse.REMAINDER)
    run = verbs.add_parser("run", parents=[named], help="run a command, or a shell, on a node")
    run.add_argument("node")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    verbs.add_parser("build", help="build everything, start nothing")
    return parser


_VERBS = {"up": _up, "down": _down, "status": _status, "kubectl": _kubectl, "run": _run, "build": _build}

if __name__ == "__main__":
    sys.exit(main())
