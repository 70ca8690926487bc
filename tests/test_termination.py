"""A process that waits for signals while they come by the thousand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from dra_driver.termination import Termination

WAITS = """
from dra_driver.termination import Termination

termination = Termination()
termination.listen()
print("listening", flush=True)
told = 0
while told < 2000:
    told += termination.wait(0.00001)
print("told", flush=True)
"""


def test_a_signal_is_not_lost_whatever_it_interrupts() -> None:
    """With an Event the process stands still after a few hundred: the handler waits for the lock of the wait it interrupted."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        ended = threading.Event()

        def pester() -> None:
            while not ended.is_set():
                os.kill(process.pid, signal.SIGTERM)

        pesterer = threading.Thread(target=pester)
        pesterer.start()
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            assert process.stdout.readline() == "told\n"
        finally:
            timer.cancel()
            ended.set()
            pesterer.join()
            process.kill()


def test_without_a_signal_a_wait_ends_by_itself() -> None:
    assert not Termination().wait(0.01)
