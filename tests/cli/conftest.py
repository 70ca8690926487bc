"""`dra-driver` as a user runs it: a process, its exit status, and what it prints where."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cli.main import main

Ran = subprocess.CompletedProcess[str]
Command = Callable[..., Ran]

EMPTY: tuple[str, ...] = ("KUBECONFIG", "NODE_NAME", "NVIDIA_DRIVER_ROOT", "CDI_ROOT", "POD_UID")


def environment(**more: str) -> dict[str, str]:
    """This one's without any setting of the driver."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DRA_DRIVER_") and key not in EMPTY}
    return {**kept, **more}


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The same without a process of its own, where many inputs are tried."""

    def run(*argv: str | Path, stdin: str | bytes = b"") -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main([*map(str, argv)])
        captured = capsys.readouterr()
        return Ran(argv, status, captured.out, captured.err)

    return run


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def run(*argv: str | Path, stdin: str | bytes = b"", **variables: str) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "dra_driver.cli.main", *map(str, argv)],
            input=data,
            capture_output=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
            env=environment(PYTHONPATH=os.getcwd(), **variables),
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Ran(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
