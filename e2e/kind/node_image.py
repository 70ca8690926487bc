"""The image of a node: kind's own where Docker can pull it, else one made of the programs that the other cluster runs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.build import Programs, build
from e2e.cluster.capabilities import CAP_SYS_RESOURCE, may_have
from e2e.cluster.golang import Go, cache_directory
from e2e.cluster.images import Image
from e2e.cluster.parts import CONTROL_PLANE, KIND_MODULE, KUBERNETES, NODE, NODE_IMAGE
from e2e.cluster.prerequisites import provide
from e2e.cluster.steps import say, step
from e2e.kind.docker import Docker, digest
from e2e.kind.roots import NODE as ROOT
from e2e.kind.roots import provide_root

SOURCES = Path(__file__).with_name("node")
NAME = "dra-driver-node"
PLACES = {
    "usr/bin": ("kubelet", "kubectl", "kubeadm"),
    "usr/local/bin": ("containerd", "containerd-shim-runc-v2", "ctr", "crictl"),
    "usr/local/sbin": ("runc",),
    "opt/cni/bin": ("bridge", "loopback", "host-local", "portmap"),
}
OURS = {
    "kind/bin/preload.sh": "preload.sh",
    "kind/bin/pod-network.sh": "pod-network.sh",
    "etc/systemd/system/pod-network.service": "pod-network.service",
}


@dataclass(frozen=True, slots=True)
class NodeImage:
    name: str
    official: bool  # with kindnet and a storage class that makes volumes


def provide_node_image(docker: Docker, go: Go) -> NodeImage:
    """The official image where it is there or can be pulled, else ours. What pulling ran into is told."""
    sources = _kind_sources(go)
    official = _official(sources)
    if docker.has_image(official):
        return NodeImage(official, True)
    names = docker.run("images", "--format", "{{.Repository}}", NAME)
    if not names:  # else no registry was reachable last time: not asked again and again
        say(f"pulling {official.partition('@')[0]}")
        pulled = docker.ask("pull", "--quiet", official, timeout=900)
        if pulled.returncode == 0:
            return NodeImage(official, True)
        say(f"  it is not to be had, so one is built: {pulled.stderr.strip()[-200:]}")
    return NodeImage(_built(docker, sources), False)


def _kind_sources(go: Go) -> Path:
    """Where the module of kind lies: it says which node image belongs to it, and has the files of its own."""
    done = subprocess.run(
        [str(go.program), "mod", "download", "-json", KIND_MODULE.path],
        cwd=KIND_MODULE.directory,
        env=go.environment(cgo=False),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"fetching {KIND_MODULE.path} {KIND_MODULE.version}: {(done.stderr or done.stdout)[-500:]}")
    return Path(json.loads(done.stdout)["Dir"])


def _official(sources: Path) -> str:
    text = (sources / "pkg/apis/config/defaults/image.go").read_text()
    found = re.search(r'Image = "(kindest/node:[^"]+)"', text)
    if found is None:
        raise ClusterError(
            f"reading the name of the node image in {sources}: kind {KIND_MODULE.version} has it elsewhere"
        )
    return found[1]


def _built(docker: Docker, sources: Path) -> str:
    wanted = [program for program in (*CONTROL_PLANE, *NODE, *NODE_IMAGE) if program.name != "kube-proxy"]
    proxy = [program for program in NODE if program.name == "kube-proxy"]
    programs = build([*wanted, *proxy], provide([*wanted, *proxy], to_run=False))
    restricted = not may_have(CAP_SYS_RESOURCE)
    recipe = [Path(__file__), *sorted(SOURCES.iterdir())]
    made_of = [ROOT.image, str(restricted), str(sources), *map(str, programs.values())]
    made_of += [file.read_text() for file in recipe]
    name = f"{NAME}:{KUBERNETES.version}-{digest(chr(0).join(made_of), 10)}"
    if docker.has_image(name):
        return name
    root = provide_root(docker, ROOT)
    with (
        step(f"node image {name}"),
        tempfile.TemporaryDirectory(dir=cache_directory(), prefix=".context-") as directory,
    ):
        context = Path(directory)
        required = _required_images(programs)
        (context / "images").mkdir()
        _write_images(context / "images", programs, required)
        _write_proxy(docker, context, root, programs["kube-proxy"], required["kube-proxy"])
        _write_files(context / "files.tar", programs, sources, required["pause"], restricted=restricted)
        _docker_build(docker, SOURCES / "Dockerfile", context, root, name)
    for stage in ("node", "kube-proxy"):
        docker.run("image", "prune", "--force", "--filter", f"label=dra-driver.stage={stage}")
    return name


def _required_images(programs: Programs) -> dict[str, str]:
    """What kubeadm will ask for: short name -> full name with tag."""
    command = [str(programs["kubeadm"]), "config", "images", "list", f"--kubernetes-version={KUBERNETES.version}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {image.rpartition("/")[2].partition(":")[0]: image for image in listed}


def _write_images(directory: Path, programs: Programs, required: Mapping[str, str]) -> None:
    for name, image in required.items():
        if name == "kube-proxy":
            continue
        entrypoint = {"pause": ("/pause",), "coredns": ("/coredns",)}.get(name, ())
        place = entrypoint[0].lstrip("/") if entrypoint else f"usr/local/bin/{name}"
        Image(image, {place: programs[name]}, entrypoint=entrypoint).write(directory / f"{name}.tar")


def _write_proxy(docker: Docker, context: Path, root: str, program: Path, image: str) -> None:
    inner = context / "kube-proxy"
    inner.mkdir()
    os.link(program, inner / "kube-proxy")
    _docker_build(docker, SOURCES / "kube-proxy.Dockerfile", inner, root, image)
    docker.run("save", "--output", str(context / "images" / "kube-proxy.tar"), image)
    docker.run("rmi", image)
    (inner / "kube-proxy").unlink()


def _docker_build(docker: Docker, recipe: Path, context: Path, root: str, name: str) -> None:
    where = ["--file", str(recipe), "--tag", name, "--build-arg", f"ROOT={root}", str(context)]
    docker.run("build", "--quiet", "--force-rm", "--network=none", *where, timeout=600)


def _write_files(archive: Path, programs: Programs, sources: Path, pause: str, *, restricted: bool) -> None:
    """Everything that is laid over the Debian root, owned by root."""
    files: dict[str, tuple[bytes, int]] = {}
    theirs = sources / "images/base/files"
    for file in sorted(path for path in theirs.rglob("*") if path.is_file()):
        place = str(file.relative_to(theirs))
        if not place.startswith("LICENSES/"):
            files[place] = (file.read_bytes(), 0o755 if "/bin/" in place else 0o644)
    for place, source in OURS.items():
        files[place] = ((SOURCES / source).read_bytes(), 0o755 if "/bin/" in place else 0o644)
    for directory, names in PLACES.items():
        files |= {f"{directory}/{name}": (programs[name].read_bytes(), 0o755) for name in names}
    configuration = containerd(files["etc/containerd/config.toml"][0].decode(), pause, restricted=restricted)
    files["etc/containerd/config.toml"] = (configuration.encode(), 0o644)
    files["kind/version"] = (KUBERNETES.version.encode(), 0o644)
    with tarfile.open(archive, "w") as tar:
        for place, (content, mode) in files.items():
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))


def containerd(text: str, pause: str, *, restricted: bool) -> str:
    """kind's configuration of containerd with the pause image that this kubeadm lists.

    `restricted`: without CAP_SYS_RESOURCE nobody may lower an OOM score, and runc fails on trying.
    """
    changes = [(r'(?m)^(\s*sandbox_image = )".*"$', rf'\g<1>"{pause}"')]
    if restricted:
        changes.append((r"(?m)^(\s*restrict_oom_score_adj = )false$", r"\g<1>true"))
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text)
        if count != 1:
            raise ClusterError(f"adapting kind's containerd configuration: {pattern} is there {count} times, not once")
    return text
