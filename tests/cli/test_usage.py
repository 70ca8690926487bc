"""How the command line teaches, and what it says to what it does not understand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.settings import TABLE

from .conftest import Command, environment

VERBS = ("agent", "devices", "validate", "record", "webhook", "uninstall", "migrate", "machines", "simulate")


def test_without_a_verb_it_explains_itself(command: Command) -> None:
    done = command()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "examples:" in done.stderr
    assert all(f"\n    {verb}" in done.stderr for verb in VERBS)


def test_help_shows_every_verb_and_an_example_of_each(command: Command) -> None:
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"dra-driver {verb}" in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(command: Command, verb: str) -> None:
    done = command(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: dra-driver {verb}")


def test_help_of_the_agent_names_every_setting_its_variables_and_its_default(command: Command) -> None:
    words = command("agent", "--help").stdout.split()
    text = " ".join(words)
    for row in TABLE:
        assert row.flag in words
        assert all(f"${name}" in text for name in (row.env, *row.also))
        assert row.default in text


def test_help_of_devices_has_only_what_concerns_a_look(command: Command) -> None:
    text = command("devices", "--help").stdout
    assert "--machine" in text
    assert "--driver-root" in text
    assert "--kubelet-dir" not in text


def test_version(command: Command) -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, "dra-driver 0.1.0\n")


@pytest.mark.parametrize(("given", "meant"), [("agnt", "agent"), ("device", "devices"), ("simulation", "simulate")])
def test_a_verb_that_is_nearly_right(command: Command, given: str, meant: str) -> None:
    done = command(given)
    assert done.returncode == 2
    assert f"there is no verb '{given}'; did you mean {meant}?" in done.stderr


def test_a_verb_that_is_none_lists_all(command: Command) -> None:
    done = command("prepare-claim")
    assert done.returncode == 2
    assert "did you mean" not in done.stderr
    assert f"the verbs are {', '.join(VERBS)}" in done.stderr


@pytest.mark.parametrize("argv", [("devices", "--machin", "t4"), ("devices", "t4"), ("agent", "--what=1")])
def test_unknown_arguments_name_the_help_of_the_verb(command: Command, argv: tuple[str, ...]) -> None:
    done = command(*argv)
    assert done.returncode == 2
    assert f"unknown argument {argv[1]}" in done.stderr
    assert f"see `dra-driver {argv[0]} --help`" in done.stderr


def test_help_loads_little() -> None:
    """It answers at once, also on a busy node: no gRPC, no Kubernetes, no pydantic, no YAML."""
    script = (
        "import sys\nfrom dra_driver.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('grpc', 'kubernetes', 'pydantic', 'yaml', 'pynvml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("argv", ["machines", "devices --machine dgx-h100 -o yaml", "validate --schema", "--help"])
def test_a_reader_that_goes_away_is_no_error(argv: str) -> None:
    line = f"set -o pipefail; {sys.executable} -m dra_driver.cli.main {argv} | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_an_error() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "dra_driver.cli.main", "machines"]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "dra-driver: No space left on device\n")


def test_machines_lists_them_with_a_line_about_each(command: Command) -> None:
    done = command("machines")
    assert done.returncode == 0
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["MACHINE", "DESCRIPTION"]
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    column = header.index("DESCRIPTION")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)


def test_the_examples_in_the_help_work(command: Command, tmp_path: Path) -> None:
    assert command("simulate", tmp_path / "sim", "create", "dgx-h100").returncode == 0
    assert command("simulate", tmp_path / "sim", "lose", "3").returncode == 0
    assert command("devices", "--machine", "t4", "-o", "yaml").returncode == 0
