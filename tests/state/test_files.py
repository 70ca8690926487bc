"""The atomic writer: whole or not at all, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dra_driver import files
from dra_driver.model.errors import RetryLater, TellUser

DOING = "writing a test file"


def test_replaces_whole_with_the_mode_asked_for_and_leaves_nothing_else(tmp_path: Path) -> None:
    old_umask = os.umask(0o077)
    try:
        path = tmp_path / "made" / "on-demand" / "file"
        files.replace(str(path), b"old and longer", DOING, mode=0o644, directory_mode=0o755)
        files.replace(str(path), b"new", DOING, mode=0o644)
    finally:
        os.umask(old_umask)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_durable_writes_are_the_same_to_readers(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    files.replace(str(path), b"x" * 200_000, DOING, durable=True)
    assert files.read(str(path), DOING) == b"x" * 200_000
    assert files.remove(str(path), DOING, durable=True)
    assert not files.remove(str(path), DOING, durable=True)
    assert files.read(str(path), DOING) is None


def test_a_short_write_is_continued_and_its_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """With a limit on the file size the kernel writes the part that fits, then refuses: a real short write."""
    path = tmp_path / "file"
    script = f"""
import resource
from dra_driver import files
from dra_driver.model.errors import RetryLater
files.replace({str(path)!r}, b"old", "writing")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    files.replace({str(path)!r}, b"n" * 200, "writing")
except RetryLater as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, RetryLater, "no space or no inodes left"),
        (errno.EROFS, RetryLater, "read-only"),
        (errno.EDQUOT, RetryLater, "quota"),
        (errno.EIO, RetryLater, "Input/output error"),
        (errno.EACCES, TellUser, "permission denied"),
        (errno.ENOTDIR, TellUser, "not a directory"),
    ],
)
def test_every_refusal_names_action_path_reason_and_next_step(
    number: int, kind: type[RetryLater | TellUser], said: str
) -> None:
    error = files.refused(DOING, "/run/x", OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert str(error).startswith(f"{DOING}: /run/x: ")
    assert said in error.why
    assert error.next_step


def test_a_file_where_the_directory_should_be_is_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TellUser, match="not a directory"):
        files.replace(str(tmp_path / "file" / "below"), b"", DOING)


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / "file").symlink_to("elsewhere")
    with pytest.raises(TellUser, match="symbolic link"):
        files.read(str(tmp_path / "file"), DOING)
    files.replace(str(tmp_path / "file"), b"new", DOING)
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"
    assert not (tmp_path / "file").is_symlink()


def test_sweep_takes_old_temporary_files_of_the_prefix_only(tmp_path: Path) -> None:
    ours = tmp_path / ".mine_a.json.0123456789abcdef.tmp"
    young = tmp_path / ".mine_b.json.0123456789abcdef.tmp"
    others = [tmp_path / ".theirs.json.0123456789abcdef.tmp", tmp_path / "mine_c.json", tmp_path / ".mine_d.tmp"]
    for path in (ours, young, *others):
        path.write_bytes(b"half")
    long_ago = time.time() - 3600
    for path in (ours, *others):
        os.utime(path, (long_ago, long_ago))
    assert files.sweep(str(tmp_path), "mine_", DOING, older_than_s=60) == (str(ours),)
    assert sorted(tmp_path.iterdir()) == sorted([young, *others])
    assert files.sweep(str(tmp_path / "missing"), "mine_", DOING, older_than_s=60) == ()


def test_a_writer_killed_in_a_loop_never_shows_a_torn_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    script = f"""
from dra_driver import files
n = 0
while True:
    n += 1
    files.replace({str(path)!r}, (b"%d\\n" % (n % 10)) * (1 + n % 7 * 9000), "writing")
"""
    reads = 0
    for round_number in range(6):
        writer = subprocess.Popen([sys.executable, "-c", script])
        try:
            until = time.monotonic() + 10
            while not path.exists():
                assert time.monotonic() < until
                time.sleep(0.005)
            until = time.monotonic() + 0.15 + round_number * 0.013
            while time.monotonic() < until:
                lines = path.read_bytes().split(b"\n")
                assert lines.pop() == b""
                assert len(set(lines)) == 1
                assert (len(lines) - 1) % 9000 == 0
                reads += 1
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    assert reads > 20
    files.sweep(str(tmp_path), "file", DOING, older_than_s=0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
