"""`dra-driver devices` and `record`: this machine or a simulated one, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dra_driver.hardware.sim.machine_files import list_machines

from .conftest import Command

T4 = ["gpu-0000-3b-00-0", "gpu-0000-86-00-0", "gpu-0000-af-00-0", "gpu-0000-d8-00-0"]


def test_table(command: Command) -> None:
    done = command("devices", "--machine", "t4")
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert header.split("   ")[0] == "DEVICE"
    assert [row.split()[0] for row in rows] == T4
    for row in rows:
        assert row[header.index("PRODUCT") :].startswith("Tesla T4")
        assert row[header.index("MEMORY") :].startswith("15.0 GiB")
        assert row[header.index("MIG") :] == "no"


def test_wide_adds_what_identifies_a_gpu(command: Command) -> None:
    header, *rows = command("devices", "--machine", "l40s-a100", "-o", "wide").stdout.splitlines()
    assert "UUID" in header
    profiles = header.index("MIG PROFILES")
    assert {row[profiles:] for row in rows} == {"-", "1g.10gb,1g.10gb+me,1g.20gb,2g.20gb,3g.40gb,4g.40gb,7g.80gb"}


def test_yaml_and_json_are_the_same_slices(command: Command) -> None:
    documents = list(yaml.safe_load_all(command("devices", "--machine", "t4", "-o", "yaml").stdout))
    listed = json.loads(command("devices", "--machine", "t4", "-o", "json").stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == documents
    assert [device["name"] for device in documents[0]["spec"]["devices"]] == T4


def test_the_node_and_the_driver_name_are_settings(command: Command) -> None:
    argv = ("devices", "--machine=t4", "-o=json", "--node-name=worker-7", "--driver-name=gpu.example.com")
    (item,) = json.loads(command(*argv).stdout)["items"]
    assert item["spec"]["pool"]["name"] == item["spec"]["nodeName"] == "worker-7"
    assert item["spec"]["driver"] == "gpu.example.com"


def test_all_machines_can_be_shown(within: Command) -> None:
    for machine in list_machines():
        done = within("devices", "--machine", machine.name)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 1 + machine.gpu_count


def test_a_machine_that_does_not_exist_lists_those_that_do(command: Command) -> None:
    done = command("devices", "--machine", "dgx-h1000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'dgx-h1000': there is none of that name; known are dgx-a100, dgx-b200" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("content", ["", "- 1", "name: x", "name: [", "gpus: {}"])
def test_a_bad_machine_file_is_told_with_its_name(command: Command, tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    done = command("devices", "--machine", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(path) in done.stderr


def test_a_machine_file_that_is_not_there(command: Command) -> None:
    done = command("devices", "--machine", "./mine.yaml")
    assert done.returncode == 2
    assert "mine.yaml" in done.stderr


def test_nothing_is_left_behind(command: Command, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    for verb in ("devices", "record"):
        assert command(verb, "--machine", "t4", TMPDIR=str(temporary)).returncode == 0
    assert list(temporary.iterdir()) == []


def test_what_is_broken_is_said_and_the_rest_is_shown(command: Command, tmp_path: Path) -> None:
    sim = tmp_path / "sim"
    shown = ("devices", "--machine=dgx-h100", f"--simulation-dir={sim}", "--node-name=worker-1")
    assert len(command(*shown).stdout.splitlines()) == 9
    command("simulate", sim, "lose", "3")
    command("simulate", sim, "mig", "0", "on")
    done = command(*shown)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 7
    assert "not published: GPU index 3: " in done.stderr, "a process that starts now never knew its address"
    assert "not published as a whole: 0000:1b:00.0 NVIDIA H100 80GB HBM3 is in MIG mode" in done.stderr
    command("simulate", sim, "driver-unload")
    done = command(*shown)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no GPUs: ")


@pytest.mark.parametrize("verb", ["devices", "record"])
def test_without_a_driver_it_says_what_to_do(command: Command, tmp_path: Path, verb: str) -> None:
    done = command(verb, "--driver-root", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no GPUs: looking for NVIDIA's driver libraries: ")
    assert str(tmp_path) in done.stderr
    assert f"dra-driver {verb} --driver-root DIRECTORY" in done.stderr
    assert f"dra-driver {verb} --machine dgx-h100" in done.stderr


def test_without_a_driver_the_yaml_is_an_empty_pool_as_the_agent_publishes_it(command: Command, tmp_path: Path) -> None:
    done = command("devices", "--driver-root", tmp_path, "-o", "yaml", "--node-name=worker-1")
    assert done.returncode == 1
    assert yaml.safe_load(done.stdout)["spec"]["devices"] == []


def test_a_simulation_directory_that_cannot_be_made(command: Command) -> None:
    done = command("devices", "--machine=t4", "--simulation-dir=/proc/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "dra-driver: No such file or directory: /proc/nowhere\n"


@pytest.mark.parametrize("machine", ["gb200", "l40s-a100", "rtx-pro-server", "rtx-workstation", "t4"])
def test_a_recorded_machine_publishes_the_same_devices(within: Command, tmp_path: Path, machine: str) -> None:
    recorded = within("record", "--machine", machine)
    assert (recorded.returncode, recorded.stderr) == (0, "")
    path = tmp_path / "recorded.yaml"
    path.write_text(recorded.stdout)
    before, after = (
        [item["spec"]["devices"] for item in json.loads(within("devices", "--machine", m, "-o=json").stdout)["items"]]
        for m in (machine, str(path))
    )
    assert after == before


def test_a_scrubbed_record_says_nothing_that_identifies_the_machine(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(command("record", "--machine", "gb200", "--scrub").stdout)
    original = command("devices", "--machine", "gb200", "-o", "json").stdout
    attributes = [device["attributes"] for device in json.loads(original)["items"][0]["spec"]["devices"]]
    for secret in {value["uuid"]["string"] for value in attributes} | {attributes[0]["nvlinkClique"]["string"][:36]}:
        assert secret not in path.read_text()
    header, *rows = command("devices", "--machine", path).stdout.splitlines()
    assert len(rows) == 4, header
    assert yaml.safe_load(path.read_text())["arch"] == "aarch64"


def test_a_record_has_a_name_of_its_own_or_the_one_that_is_given(command: Command) -> None:
    assert yaml.safe_load(command("record", "--machine=t4").stdout)["name"] == "recorded-4-tesla-t4"
    assert yaml.safe_load(command("record", "--machine=t4", "--name=rack-3").stdout)["name"] == "rack-3"


def test_a_record_knows_where_the_driver_is(command: Command) -> None:
    driver = yaml.safe_load(command("record", "--machine=dgx-b200").stdout)["driver"]
    assert driver["root"] == "/run/nvidia/driver"
