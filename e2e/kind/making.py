"""What makes a cluster of kind, shows what went wrong with it, and removes it: calls of kind, kubectl and Docker."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster import ClusterError, access
from e2e.kind.docker import Docker

ADMIN = "e2e-admin"
LABEL = "label=io.x-k8s.kind.cluster"  # what kind puts on its containers


@dataclass(frozen=True, slots=True)
class Access:
    server: str  # as this host reaches it
    token: str  # of an administrator


def create(docker: Docker, kind: Path, key: str, image: str, directory: Path) -> None:
    """From `directory`/kind.yaml, on a Docker network that is called as the cluster. ClusterError with kind's errors."""
    command = [
        str(kind),
        "create",
        "cluster",
        f"--name={key}",
        f"--config={directory / 'kind.yaml'}",
        f"--image={image}",
    ]
    command += [f"--kubeconfig={directory / 'kubeconfig'}", "--retain", "--wait=120s"]
    log = directory / "kind.log"
    with log.open("w") as output:
        environment = {**docker.environment, "KIND_EXPERIMENTAL_DOCKER_NETWORK": key}
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        said = [line for line in lines if line.lower().startswith("error")] or lines[-5:]
        raise ClusterError(
            f"creating {key} with kind: {' | '.join(said)}; see {log} and the nodes' logs below {directory}"
        )


def administrator(kubectl: Path, kubeconfig: Path, ca: Path) -> Access:
    """One with a token, beside the one with a certificate that kind makes; writes the certificate of the authority."""
    access.write_private(kubeconfig, kubeconfig.read_text())
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    said = ""
    for words in (
        ["create", "serviceaccount", ADMIN, "--namespace=kube-system"],
        ["create", "clusterrolebinding", ADMIN, "--clusterrole=cluster-admin", f"--serviceaccount=kube-system:{ADMIN}"],
        ["create", "token", ADMIN, "--namespace=kube-system", "--duration=8760h"],
    ):
        command = [str(kubectl), f"--kubeconfig={kubeconfig}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"making an administrator with `{' '.join(command)}`: {done.stderr.strip()[-300:]}")
        said = done.stdout.strip()
    return Access(cluster["server"], said)


def export_logs(docker: Docker, containers: Mapping[str, str], directory: Path) -> None:
    """Of kubelet and containerd on every node, as far as there are any."""
    for node, container in containers.items():
        logs = directory / node / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for unit in ("kubelet", "containerd"):
            said = docker.ask("exec", container, "journalctl", "--no-pager", "--unit", unit)
            (logs / f"{unit}.log").write_text(said.stdout or said.stderr)


def remove(docker: Docker, key: str) -> None:
    """Containers, their volumes and the network, of a whole cluster or of part of one."""
    if containers := docker.run("ps", "--all", "--quiet", "--filter", f"{LABEL}={key}").split():
        docker.run("rm", "--force", "--volumes", *containers)
    if key in docker.run("network", "ls", "--format", "{{.Name}}").split():
        docker.run("network", "rm", key)
