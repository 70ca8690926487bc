"""How the tests ask: for the code a call answers, and for what another process does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pynvml
import pytest

from dra_driver.hardware.sim.simulation import SimulatedMachine

COMMAND = "import sys; from dra_driver.hardware.sim.command import main; sys.exit(main(sys.argv[1:]))"


def error(function: Callable[..., object], *arguments: object) -> int:
    """The NVML code with which the call fails."""
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*arguments)
    return caught.value.value


def elsewhere(machine: SimulatedMachine, *words: str) -> None:
    """The command line, in a process of its own."""
    subprocess.run([sys.executable, "-c", COMMAND, str(machine.directory), *words], check=True, timeout=60)
