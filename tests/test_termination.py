"""A process that waits for signals, whatever they interrupt."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

from dra_driver.termination import Termination

WAITS = """
import threading
from dra_driver.termination import Termination

termination = Termination()
termination.listen()
"""

MANY = """
print("listening", flush=True)
told = 0
while told < 2000:
    told += termination.wait(0.00001)
print("told", flush=True)
"""

ONE_AT_A_TIME = """
def work():
    while True:
        pass

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
while True:
    print("waiting", flush=True)
    termination.wait(60)
"""


def test_signals_by_the_thousand_leave_no_wait_standing() -> None:
    """With an Event the process stands still after a few hundred: the handler waits for the lock of the wait it interrupted."""
    with subprocess.Popen([sys.executable, "-c", WAITS + MANY], stdout=subprocess.PIPE, text=True) as process:
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


def test_one_signal_ends_the_wait_that_is_just_beginning_beside_busy_threads() -> None:
    """With a queue that a handler of Python's fills, one in some hundreds is heard when the wait is over: the handler runs in
    the main thread, which has gone to sleep meanwhile."""
    moments = random.Random(0)
    with subprocess.Popen([sys.executable, "-c", WAITS + ONE_AT_A_TIME], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for _ in range(1000):
                assert select.select([process.stdout], [], [], 20)[0], "the signal was not heard"
                assert process.stdout.readline() == "waiting\n"
                # A thread keeps the interpreter for 5 ms at a time: the wait begins within a few of these.
                time.sleep(moments.uniform(0, 0.012))
                os.kill(process.pid, signal.SIGTERM)
        finally:
            process.kill()


def test_without_a_signal_a_wait_ends_by_itself() -> None:
    with closing(Termination()) as termination:
        assert not termination.wait(0.01)


def test_told_more_often_than_is_listened_to_it_does_not_stand_still() -> None:
    with closing(Termination()) as termination:
        for _ in range(10_000):
            termination.tell()
        assert termination.wait(0.01)
