"""Settings as the verbs meet them: every mistake at once, from wherever it comes; the agent's exit statuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Command, environment


def test_the_agent_needs_the_name_of_its_node(command: Command) -> None:
    done = command("agent")
    assert done.returncode == 2
    assert done.stderr.startswith("dra-driver: reading the settings: --node-name is required: ")
    assert "DRA_DRIVER_NODE_NAME or NODE_NAME" in done.stderr


def test_all_mistakes_at_once_and_where_each_was_made(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("log-level: loud\nnode-nam: x\nkeeper-s: [1]\n")
    done = command("agent", "--rescan-s=often", f"--config={config}", DRA_DRIVER_CDI_DIR="cdi", NODE_NAME="Worker")
    assert done.returncode == 2
    for mistake in (
        "--rescan-s 'often': must be a number of seconds",
        "environment variable DRA_DRIVER_CDI_DIR 'cdi': must be an absolute path",
        "environment variable NODE_NAME 'Worker': must be a lower-case DNS name",
        "log-level in the settings file 'loud': must be one of debug, info, warning, error",
        f"settings file {config}: 'node-nam' is not a setting",
        f"settings file {config}: keeper-s must be a plain value",
    ):
        assert mistake in done.stderr
    assert done.stderr.endswith("see `dra-driver agent --help`\n")


def test_a_settings_file_that_is_not_there(command: Command) -> None:
    done = command("agent", "--node-name=worker-1", "--config=/nowhere.yaml")
    assert done.returncode == 2
    assert "settings file /nowhere.yaml: " in done.stderr


def test_looking_needs_no_node_name_and_takes_the_same_settings(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("machine: t4\nnode-name: from-file\n")
    by_file = command("devices", "-o=json", f"--config={config}")
    assert json.loads(by_file.stdout)["items"][0]["spec"]["nodeName"] == "from-file"
    by_variable = command("devices", "-o=json", f"--config={config}", DRA_DRIVER_NODE_NAME="from-variable")
    assert json.loads(by_variable.stdout)["items"][0]["spec"]["nodeName"] == "from-variable"
    by_flag = command("devices", "-o=json", "--node-name=from-flag", DRA_DRIVER_NODE_NAME="x", DRA_DRIVER_MACHINE="t4")
    assert json.loads(by_flag.stdout)["items"][0]["spec"]["nodeName"] == "from-flag"


def test_an_agent_that_cannot_start_says_why_in_its_log(command: Command, tmp_path: Path) -> None:
    done = command("agent", "--node-name=worker-1", "--machine=nope", f"--simulation-dir={tmp_path}")
    assert done.returncode == 1
    last = json.loads(done.stderr.splitlines()[-1])
    assert last["level"] == "error"
    assert "there is none of that name; known are dgx-a100" in last["msg"]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a unix socket holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra-") as directory:
        yield Path(directory)


def test_an_agent_without_an_api_server_waits_for_it_and_stops_when_told(short_path: Path) -> None:
    kubeconfig = short_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    flags = {"node-name": "worker-1", "machine": "t4", "kubeconfig": str(kubeconfig)}
    flags |= {f"{name}-dir": str(short_path / name) for name in ("simulation", "kubelet", "cdi", "run")}
    (short_path / "kubelet" / "plugins").mkdir(parents=True)
    (short_path / "kubelet" / "plugins_registry").mkdir()
    argv = [
        sys.executable,
        "-m",
        "dra_driver.cli.main",
        "agent",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment()) as agent:
        assert agent.stderr is not None
        lines = []
        deadline = time.monotonic() + 30
        for line in agent.stderr:
            lines.append(json.loads(line))
            if lines[-1]["msg"] == "serving":
                break
            assert time.monotonic() < deadline, lines
        agent.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in agent.stderr]
        assert agent.wait(20) == 0, rest or lines
    assert rest[-1]["msg"] == "stopped"
    assert {line["level"] for line in lines + rest} <= {"info", "warning"}
    assert any("127.0.0.1" in line["msg"] for line in lines + rest), "it says whom it cannot reach"
