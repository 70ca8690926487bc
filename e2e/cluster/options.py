"""What a cluster is asked to be. Values only: nothing here looks at the machine, except for where the home is."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
RELEASE = re.compile(r"1\.\d+")
# A node gets its own layer over these directories, so what lies below them on the host is out of a node's sight.
COVERED = ("/etc", "/proc", "/run", "/sys", "/var/lib", "/var/log", "/var/run")


HOME = Path("/var/tmp/dra-e2e")


def default_home() -> Path:
    """A user who is not root, and has Docker, has a home of his own."""
    usual = HOME if os.geteuid() == 0 else Path(f"{HOME}-{os.geteuid()}")
    return Path(os.environ.get("DRA_E2E_HOME") or usual)


@dataclass(frozen=True, slots=True)
class Options:
    """ValueError on construction says which option is wrong and what it may be."""

    name: str = "dev"
    nodes: tuple[str, ...] = ("node-1", "node-2")  # empty: a control plane only, and no scheduler is needed
    emulate: str | None = None  # release whose API is served, "1.34"; None: the release of the binaries
    served: tuple[str, ...] | None = None  # versions of resource.k8s.io, ("v1beta1",); None: that release's default
    feature_gates: Mapping[str, bool] = field(default_factory=dict)  # for every component, kubelets included
    containerd17: Mapping[str, bool] = field(default_factory=dict)  # nodes with containerd 1.7: whether CDI is on there
    home: Path = field(default_factory=default_home)

    def __post_init__(self) -> None:
        for what, name in [("cluster", self.name), *(("node", node) for node in self.nodes)]:
            if not NAME.fullmatch(name):
                raise ValueError(f"naming a {what} {name!r}: use 1 to 20 of a-z, 0-9 and inner hyphens")
        if "control-plane" in self.nodes:
            raise ValueError("naming a node control-plane: that machine is there already; use another name")
        if len(set(self.nodes)) != len(self.nodes) or len(self.nodes) > 100:
            raise ValueError(f"naming nodes {', '.join(self.nodes)}: names must differ, 100 nodes at most")
        if strangers := sorted(set(self.containerd17) - set(self.nodes)):
            raise ValueError(f"giving {', '.join(strangers)} containerd 1.7: the nodes are {', '.join(self.nodes)}")
        if self.emulate is not None and not RELEASE.fullmatch(self.emulate):
            raise ValueError(f"emulating Kubernetes {self.emulate!r}: give a minor release, for example 1.34")
        for covered in COVERED:
            if self.home.is_relative_to(covered):
                raise ValueError(
                    f"using {self.home} as home: nodes have a {covered} of their own; set DRA_E2E_HOME elsewhere"
                )

    @property
    def directory(self) -> Path:
        return self.home / self.name

    @property
    def key(self) -> str:
        """Names what is the whole machine's, interface and cgroups: clusters of one name in two homes are two."""
        if self.home == HOME:
            return self.name
        return f"{self.name}-{hashlib.sha256(str(self.home).encode()).hexdigest()[:4]}"

    @property
    def scheduled(self) -> bool:
        """Whether a scheduler runs: it needs nodes, and at 1.37 it needs resource.k8s.io/v1 served."""
        return bool(self.nodes) and (self.served is None or "v1" in self.served)

    @property
    def gates(self) -> str:
        return ",".join(f"{gate}={str(on).lower()}" for gate, on in sorted(self.feature_gates.items()))

    def record(self) -> dict[str, Any]:
        """As the state file keeps them; what `same_as` compares."""
        return {
            "nodes": list(self.nodes),
            "emulate": self.emulate,
            "served": None if self.served is None else list(self.served),
            "feature_gates": dict(sorted(self.feature_gates.items())),
            "containerd17": dict(sorted(self.containerd17.items())),
        }

    @classmethod
    def recorded(cls, name: str, home: Path, record: Mapping[str, Any]) -> Options:
        served = record["served"]
        return cls(
            name=name,
            nodes=tuple(record["nodes"]),
            emulate=record["emulate"],
            served=None if served is None else tuple(served),
            feature_gates=record["feature_gates"],
            containerd17=record["containerd17"],
            home=home,
        )

    def same_as(self, record: Mapping[str, Any]) -> bool:
        return json.dumps(self.record(), sort_keys=True) == json.dumps(dict(record), sort_keys=True)
