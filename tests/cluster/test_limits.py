"""The number of inotify instances, which nodes run out of without naming it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.limits import ENOUGH, check_inotify, raise_inotify, restore_inotify


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can count them")
def test_a_cluster_that_would_not_find_enough_is_refused_with_the_way_out(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    limit.write_text("1000000\n")
    check_inotify("bringing up demo", 34, limit)
    limit.write_text("33\n")
    with pytest.raises(ClusterError, match=r"bringing up demo: .* 34 .*of root's 33 .*sysctl fs.inotify"):
        check_inotify("bringing up demo", 34, limit)


def test_the_limit_is_as_it_was_afterwards(tmp_path: Path) -> None:
    limit, record = tmp_path / "limit", tmp_path / "record"
    limit.write_text("128\n")
    raise_inotify(record, limit)
    assert int(limit.read_text()) == ENOUGH
    restore_inotify(record, limit)
    assert int(limit.read_text()) == 128
    assert not record.exists()


def test_a_limit_that_is_enough_or_that_somebody_else_has_set_is_left_alone(tmp_path: Path) -> None:
    limit, record = tmp_path / "limit", tmp_path / "record"
    limit.write_text("8192\n")
    raise_inotify(record, limit)
    restore_inotify(record, limit)
    assert limit.read_text() == "8192\n"
    limit.write_text("128\n")
    raise_inotify(record, limit)
    limit.write_text("4096\n")
    restore_inotify(record, limit)
    assert limit.read_text() == "4096\n"
