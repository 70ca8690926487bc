from __future__ import annotations

import os
import signal
import subprocess

from e2e.cluster.identity import Identity, identify


def test_a_process_is_killed_and_its_end_is_seen() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        assert identity.alive
        assert not identity.wait(0)
        identity.kill()
        assert not identity.alive
        assert identity.wait(0)
    assert process.returncode == -signal.SIGKILL


def test_stop_asks_before_it_kills() -> None:
    with subprocess.Popen(["sh", "-c", "trap 'exit 3' TERM; echo; while :; do sleep 0.01; done"], stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identify(process.pid)
        assert identity is not None
        identity.stop()
    assert process.returncode == 3


def test_a_stranger_with_the_same_id_gets_no_signal() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        real = identify(process.pid)
        assert real is not None
        stranger = Identity(process.pid, real.started - 1)
        assert not stranger.alive
        assert not stranger.send(signal.SIGKILL)
        assert stranger.wait(0)
        assert process.poll() is None
        real.kill()


def test_nobody_is_nobody() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert identify(process.pid) is None
    assert not Identity(process.pid, 1).send(signal.SIGKILL)
    assert identify(os.getpid()) is not None
