"""Device locks: between threads, between processes, freed by death."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from dra_driver.model.errors import RetryLater
from dra_driver.state.ledger import FileLedger

HOLDER = """
import sys, time
from dra_driver.state.ledger import FileLedger
with FileLedger(sys.argv[1]).lock(frozenset(sys.argv[2:]), 5):
    print("held", flush=True)
    time.sleep(60)
"""
COUNTER = """
import sys
from pathlib import Path
from dra_driver.state.ledger import FileLedger
ledger, counter = FileLedger(sys.argv[1]), Path(sys.argv[2])
for _ in range(100):
    with ledger.lock(frozenset(sys.argv[3:]), 30):
        value = int(counter.read_text())
        counter.write_text(str(value + 1))
"""


def set_of(*devices: str) -> frozenset[str]:
    return frozenset(devices)


def test_other_devices_do_not_wait_and_the_busy_one_is_named(ledger: FileLedger, directory: Path) -> None:
    other = FileLedger(str(directory))
    with ledger.lock(set_of("gpu-1", "0000:1b:00.0"), 1):
        with other.lock(set_of("gpu-0", "gpu-2"), 0):
            pass
        started = time.monotonic()
        with pytest.raises(RetryLater, match=r"locking gpu-0, gpu-1: gpu-1 was busy for 0.1 s") as caught:
            other.lock(set_of("gpu-0", "gpu-1"), 0.1).__enter__()
        assert 0.1 <= time.monotonic() - started < 1
        assert caught.value.next_step
        with other.lock(set_of("gpu-0"), 0):
            pass  # what had been taken on the way was given back
    with other.lock(set_of("gpu-1"), 0):
        pass


def test_no_devices_is_no_lock(ledger: FileLedger) -> None:
    with ledger.lock(frozenset(), 0):
        pass


def test_an_error_inside_frees(ledger: FileLedger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.lock(set_of("gpu-0"), 0):
        _ = 1 / 0
    with ledger.lock(set_of("gpu-0"), 0):
        pass


def test_threads_exclude_each_other_in_any_order_of_devices(ledger: FileLedger) -> None:
    inside: list[str] = []
    most = 0

    def work(*devices: str) -> None:
        nonlocal most
        for _ in range(30):
            with ledger.lock(set_of(*devices), 30):
                inside.append("x")
                most = max(most, len(inside))
                time.sleep(0.0002)
                inside.pop()

    threads = [
        threading.Thread(target=work, args=devices)
        for devices in (("gpu-0", "gpu-1"), ("gpu-1", "gpu-0"), ("gpu-1", "gpu-2"), ("gpu-2", "gpu-1", "gpu-0"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1


def test_processes_contend_and_lose_no_update(directory: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    arguments = [sys.executable, "-c", COUNTER, str(directory), str(counter)]
    workers = [subprocess.Popen([*arguments, "gpu-0", "gpu-1"]), subprocess.Popen([*arguments, "gpu-1", "gpu-2"])]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert counter.read_text() == "200"


def test_the_kernel_frees_the_locks_of_a_killed_process(ledger: FileLedger, directory: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory), "gpu-0", "gpu-1"], stdout=subprocess.PIPE)
    with ExitStack() as stack:
        stack.callback(holder.wait)
        stack.callback(holder.send_signal, signal.SIGKILL)
        assert holder.stdout is not None
        stack.callback(holder.stdout.close)
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RetryLater, match="gpu-0 was busy"):
            ledger.lock(set_of("gpu-0"), 0.05).__enter__()
        threading.Timer(0.1, holder.send_signal, (signal.SIGKILL,)).start()
        with ledger.lock(set_of("gpu-0", "gpu-1"), 5):
            pass


def test_a_child_started_under_the_lock_does_not_keep_it(ledger: FileLedger) -> None:
    """An MPS daemon outlives the agent; it must not take the device's lock along."""
    with ledger.lock(set_of("gpu-0"), 1):
        child = subprocess.Popen(["sleep", "60"])
    try:
        with ledger.lock(set_of("gpu-0"), 0):
            pass
    finally:
        child.kill()
        child.wait()
