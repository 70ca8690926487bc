"""`dra-driver simulate`: a machine made, shown and broken by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Command


@pytest.fixture
def sim(command: Command, tmp_path: Path) -> Path:
    done = command("simulate", tmp_path / "sim", "create", "dgx-h100")
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path / "sim"


def test_show_says_what_it_is_and_how_each_gpu_is(command: Command, sim: Path) -> None:
    for verb, argument in (("lose", "3"), ("remove", "0000:43:00.0"), ("mig", "0")):
        assert command("simulate", sim, verb, argument, *(["on"] if verb == "mig" else [])).returncode == 0
    assert command("simulate", sim, "hang", "--call", "nvmlDeviceGetUUID", "--gpu", "5").returncode == 0
    lines = command("simulate", sim, "show").stdout.splitlines()
    assert lines[0].startswith("dgx-h100: DGX H100")
    assert f"host root {sim}/root" in lines
    gpus = [line for line in lines if line.startswith("GPU ")]
    assert gpus[0].endswith("ok, MIG on")
    assert gpus[1].endswith("removed, MIG off")
    assert gpus[3].endswith("lost, MIG off")
    assert lines[-1] == "fault: hang nvmlDeviceGetUUID on 0000:c3:00.0"
    command("simulate", sim, "heal")
    command("simulate", sim, "return", "3")
    healed = command("simulate", sim, "show").stdout
    assert "fault:" not in healed
    assert "lost" not in healed


def test_what_is_done_without_words_was_done(command: Command, sim: Path) -> None:
    done = command("simulate", sim, "lose", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_machine_that_was_not_made(command: Command, tmp_path: Path) -> None:
    done = command("simulate", tmp_path / "nowhere", "lose", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tmp_path / "nowhere") in done.stderr
    assert "create it first" in done.stderr


def test_a_gpu_that_is_not_there_lists_those_that_are(command: Command, sim: Path) -> None:
    done = command("simulate", sim, "lose", "8")
    assert done.returncode == 1
    assert "there is none; known are 0 (0000:1b:00.0), 1 (0000:43:00.0)" in done.stderr


def test_an_unknown_machine(command: Command, tmp_path: Path) -> None:
    done = command("simulate", tmp_path / "sim", "create", "dgx")
    assert done.returncode == 1
    assert "known are dgx-a100" in done.stderr
    assert not (tmp_path / "sim").exists()


def test_another_machine_in_the_same_directory(command: Command, sim: Path) -> None:
    done = command("simulate", sim, "create", "t4")
    assert done.returncode == 1
    assert "it already holds dgx-h100" in done.stderr
    assert command("simulate", sim, "create", "dgx-h100").returncode == 0


def test_a_wrong_verb_shows_the_usage(command: Command, sim: Path) -> None:
    done = command("simulate", sim, "explode")
    assert done.returncode == 2
    assert "usage: dra-driver simulate [-h] DIR VERB" in done.stderr
