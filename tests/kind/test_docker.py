from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.choice import CHOICES, chosen
from e2e.cluster import ClusterError
from e2e.cluster.identity import identify
from e2e.kind import docker
from e2e.kind.daemon import WITHOUT_CAPABILITY, interface
from e2e.kind.docker import Docker


def wrapper(directory: Path) -> Path:
    (directory / "runc").write_text('#!/bin/sh\necho "$@"\n')
    (directory / "runc").chmod(0o755)
    made = directory / "wrapper"
    made.write_text(WITHOUT_CAPABILITY.format(runc=directory / "runc"))
    made.chmod(0o755)
    return made


@pytest.mark.parametrize(
    "before",
    [["CAP_KILL", "CAP_SYS_RESOURCE", "CAP_CHOWN"], ["CAP_SYS_RESOURCE", "CAP_KILL"], ["CAP_KILL", "CAP_SYS_RESOURCE"]],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_container_is_not_given_what_this_machine_has_not(
    tmp_path: Path, before: list[str], indent: int | None
) -> None:
    config = {"process": {"capabilities": {"bounding": before, "effective": before}, "args": ["CAP_SYS_RESOURCE"]}}
    (tmp_path / "config.json").write_text(json.dumps(config, indent=indent))
    run = wrapper(tmp_path)
    done = subprocess.run(
        [run, "--root", "/r", "create", "--bundle", tmp_path, "id"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"--root /r create --bundle {tmp_path} id\n"
    after = json.loads((tmp_path / "config.json").read_text())["process"]["capabilities"]
    assert after["bounding"] == after["effective"] == [name for name in before if name != "CAP_SYS_RESOURCE"]


def test_a_process_in_a_container_neither(tmp_path: Path) -> None:
    process = tmp_path / "process.json"
    process.write_text('{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"]}}')
    subprocess.run([wrapper(tmp_path), "exec", "--process", process, "id"], capture_output=True, check=True)
    assert json.loads(process.read_text()) == {"capabilities": {"bounding": ["CAP_CHOWN"]}}


def test_what_a_client_complains_of_is_in_the_error(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\necho no space left >&2; exit 1\n")
    client.chmod(0o755)
    with pytest.raises(ClusterError, match="docker pull x: no space left"):
        Docker(client).run("pull", "x")
    assert not Docker(client).has_image("x")


def test_a_client_without_a_daemon_is_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert docker.machines_own() is None
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    assert docker.machines_own() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process ids needs root")
def test_a_process_of_another_namespace_is_found_by_its_number_there() -> None:
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    inside = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable, sleeper]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *inside], stdout=subprocess.PIPE, text=True
    ) as unshare:
        assert unshare.stdout is not None
        inner = int(unshare.stdout.readline())
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        init = identify(int(children[0]))
        assert init is not None
        found = docker.on_host(init, inner)
        assert found is not None
        assert Path(f"/proc/{found}/cmdline").read_text().split("\0")[2] == sleeper
        assert docker.on_host(init, 4_000_000) is None
        unshare.kill()


def test_bridges_say_whose_they_are_within_the_limit_of_the_kernel() -> None:
    ones = interface(Path("/home/one"), "kind-a-cluster-with-a-long-name")
    assert len(ones) <= 15
    assert ones != interface(Path("/home/one"), "kind-other")
    assert ones[:7] == interface(Path("/home/one"), "kind-other")[:7] != interface(Path("/home/two"), "kind-other")[:7]


def test_the_cluster_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2E_CLUSTER", raising=False)
    assert chosen() == "processes"
    for name in CHOICES:
        monkeypatch.setenv("E2E_CLUSTER", name)
        assert chosen() == name
    monkeypatch.setenv("E2E_CLUSTER", "minikube")
    with pytest.raises(ValueError, match="none of processes, kind"):
        chosen()
