"""Which programs a cluster consists of and how each is built. A table; it builds nothing.

Versions stand in `modules/<name>/go.mod` alone, one Go module per project, because one graph of all does not resolve.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True, slots=True)
class Module:
    """One project, as a consumer module: `go install path@version` refuses projects with replace directives."""

    name: str
    path: str
    tags: tuple[str, ...] = ()
    cgo: bool = False
    stamp: tuple[str, ...] = ()  # linker's -X; {version} is "v1.37.1", {major} and {minor} its parts

    @property
    def directory(self) -> Path:
        return MODULES / self.name

    @property
    def version(self) -> str:
        found = re.search(rf"^(?:require |\t){re.escape(self.path)} (v\S+)", self._text("go.mod"), re.MULTILINE)
        if found is None:
            raise ValueError(f"reading {self.directory}/go.mod: it does not require {self.path}")
        return found[1]

    @property
    def go(self) -> str:
        """Oldest Go that builds it."""
        found = re.search(r"^go (\S+)", self._text("go.mod"), re.MULTILINE)
        return found[1] if found else "1.26.0"

    @property
    def flags(self) -> tuple[str, ...]:
        major, minor, *_ = self.version.lstrip("v").split(".")
        ld = ["-s", "-w", *(f"-X {x}" for x in self.stamp), *(["-extldflags -static"] if self.cgo else [])]
        text = " ".join(ld).format(version=self.version, major=major, minor=minor)
        return ("-trimpath", "-buildvcs=false", f"-tags={','.join(self.tags)}", f"-ldflags={text}")

    def key(self, go: str) -> str:
        """Names a directory of finished programs: the same key means the same programs."""
        own = [source.read_text() for source in sorted(self.directory.glob("*.go"))]
        parts = (self._text("go.mod"), self._text("go.sum"), *own, *self.flags, str(self.cgo), go)
        return f"{self.name}-{self.version}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"

    def _text(self, name: str) -> str:
        return (self.directory / name).read_text()


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: Module
    package: str
    file: str = ""  # what the program itself is called, where two are called the same

    @property
    def called(self) -> str:
        return self.file or self.name


_VERSION = "k8s.io/component-base/version"
KUBERNETES = Module(
    "kubernetes",
    "k8s.io/kubernetes",
    # Unstamped, every component says v0.0.0-master and version skew checks misfire.
    stamp=(
        f"{_VERSION}.gitVersion={{version}}",
        f"{_VERSION}.gitMajor={{major}}",
        f"{_VERSION}.gitMinor={{minor}}",
        f"{_VERSION}.gitTreeState=clean",
    ),
)
CONTAINERD = Module(
    "containerd",
    "github.com/containerd/containerd/v2",
    tags=("no_btrfs", "no_devmapper", "no_zfs"),
    stamp=("github.com/containerd/containerd/v2/version.Version={version}",),
)
# The last line of releases in which CDI is a switch, off by default.
CONTAINERD17 = Module(
    "containerd17",
    "github.com/containerd/containerd",
    tags=("no_aufs", "no_btrfs", "no_devmapper", "no_zfs"),
    stamp=("github.com/containerd/containerd/version.Version={version}",),
)
# Without seccomp runc refuses every sandbox: the default profile is always asked for.
RUNC = Module("runc", "github.com/opencontainers/runc", tags=("netgo", "osusergo", "seccomp"), cgo=True)
CNI = Module(
    "cni",
    "github.com/containernetworking/plugins",
    stamp=("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={version}",),
)
ETCD = Module("etcd", "go.etcd.io/etcd/server/v3")
# The release of Kubernetes is what `helm template` renders for when it is not told one.
HELM = Module(
    "helm",
    "helm.sh/helm/v3",
    stamp=(
        "helm.sh/helm/v3/internal/version.version={version}",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
        f"helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={KUBERNETES.version.split('.')[1]}",
    ),
)
KIND_MODULE = Module("kind", "sigs.k8s.io/kind")
CRICTL = Module("crictl", "sigs.k8s.io/cri-tools", stamp=("sigs.k8s.io/cri-tools/pkg/version.Version={version}",))
COREDNS = Module("coredns", "github.com/coredns/coredns")  # a main of our own: modules/coredns/main.go
CERT_MANAGER = Module("cert-manager", "github.com/cert-manager/cert-manager")  # a main of our own, and its chart
# 3.23: of 3.27, 3.30 and 3.31 the Go module proxy lacks Calico or its API, a module of its own.
CALICO = Module("calico", "github.com/projectcalico/calico")
KUEUE = Module("kueue", "sigs.k8s.io/kueue")
NFD = Module("nfd", "sigs.k8s.io/node-feature-discovery")
# Its CRDs only.
PROMETHEUS_OPERATOR = Module("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")


def _program(module: Module, inner: str) -> Program:
    package = f"{module.path}/{inner}" if inner else module.path
    return Program(inner.rsplit("/", 1)[-1] or module.name, module, package)


CONTROL_PLANE = (
    _program(ETCD, ""),
    _program(KUBERNETES, "cmd/kube-apiserver"),
    _program(KUBERNETES, "cmd/kube-controller-manager"),
    _program(KUBERNETES, "cmd/kube-scheduler"),
    _program(KUBERNETES, "cmd/kubectl"),
)
NODE = (
    _program(KUBERNETES, "cmd/kubelet"),
    _program(KUBERNETES, "cmd/kube-proxy"),
    _program(CONTAINERD, "cmd/containerd"),
    _program(CONTAINERD, "cmd/containerd-shim-runc-v2"),
    _program(CONTAINERD, "cmd/ctr"),
    _program(RUNC, ""),
    _program(CNI, "plugins/main/bridge"),
    _program(CNI, "plugins/main/loopback"),
    _program(CNI, "plugins/ipam/host-local"),
    _program(CNI, "plugins/meta/portmap"),
)
PROGRAMS = CONTROL_PLANE + NODE
# What a node with containerd 1.7 has instead; built when a cluster is asked to have one.
OLD_RUNTIME = tuple(
    Program(f"{name}-1.7", CONTAINERD17, f"{CONTAINERD17.path}/cmd/{name}", file=name)
    for name in ("containerd", "containerd-shim-runc-v2")
)
# What a cluster of kind needs besides: the command, and what only a node image built here needs.
KIND = (_program(KIND_MODULE, ""),)
NODE_IMAGE = (
    _program(KUBERNETES, "cmd/kubeadm"),
    _program(CRICTL, "cmd/crictl"),
    Program("coredns", COREDNS, "."),
)
CHART = (_program(HELM, "cmd/helm"),)  # no part of a cluster: built when a chart is rendered or installed
BESIDE = (Program("cert-manager", CERT_MANAGER, "."),)  # what users have beside the driver
NODE_FEATURE_DISCOVERY = (_program(NFD, "cmd/nfd-master"), _program(NFD, "cmd/nfd-worker"))
# These take minutes to build: for `make e2e-others` alone.
QUEUEING = (_program(KUEUE, "cmd/kueue"),)
NETWORK_POLICIES = (_program(CALICO, "cni-plugin/cmd/calico"), _program(CALICO, "felix/cmd/calico-felix"))


def oldest_go() -> str:
    """Oldest Go that builds everything."""
    modules = {program.module.name: program.module for program in PROGRAMS}.values()
    return max((module.go for module in modules), key=release)


def release(version: str) -> tuple[int, ...]:
    """ "go1.26.8" and "1.26" as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", version))
