from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.identity import Identity
from e2e.cluster.state import State, exclusively


def test_another_run_reads_what_one_recorded(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert not state.exists
    state.create({"nodes": ["a"]}, "10.213.7", {"kubectl": Path("/x/kubectl")})
    state.put("a", Identity(10, 100))
    state.put("a/kubelet", Identity(11, 101))
    state.put("a/kubelet", Identity(12, 102))

    other = State(tmp_path)
    assert other.exists
    assert not other.complete
    assert other.subnet == "10.213.7"
    assert other.programs == {"kubectl": Path("/x/kubectl")}
    assert other.processes() == {"a": Identity(10, 100), "a/kubelet": Identity(12, 102)}
    assert other.process("b") is None
    state.finish()
    assert other.complete
    state.forget("a/kubelet")
    state.forget("a/kubelet")
    assert other.processes() == {"a": Identity(10, 100)}


def test_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="bring it up first"):
        _ = State(tmp_path).subnet


def test_one_holder_at_a_time_and_no_lock_file_stays(tmp_path: Path) -> None:
    lock = tmp_path / "home" / ".demo.lock"
    with (
        exclusively(lock, "bringing up demo"),
        pytest.raises(ClusterError, match="bringing up demo: another process"),
        exclusively(lock, "bringing up demo"),
    ):
        pass
    assert os.listdir(tmp_path / "home") == []
    with exclusively(lock, "again"):
        assert lock.exists()
