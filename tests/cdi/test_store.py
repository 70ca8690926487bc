"""The store on real files: whole or not there, and nobody else's touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cdi import names
from dra_driver.cdi.store import FileCdiStore
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
from dra_driver.model.errors import GiveUp, RetryLater, TellUser
from dra_driver.ports import CdiStore

UID = "9d5fb3bd-0a2b-4a5e-8d6e-0f3f8a7c1b2d"
VENDOR = names.vendor("gpu.nvidia.com")
GPU = ContainerEdits(device_nodes=(DeviceNode("/dev/nvidia0"),))
COMMON = ContainerEdits(
    env=("NVIDIA_VISIBLE_DEVICES=void",), mounts=tuple(Mount(f"/lib/{n}", f"/lib/{n}") for n in range(70))
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


@pytest.fixture
def store(directory: Path) -> FileCdiStore:
    return FileCdiStore(str(directory), VENDOR)


def write(store: FileCdiStore, uid: str = UID, edits: ContainerEdits = GPU) -> None:
    store.write(uid, [(f"{uid}-gpu-0", edits)], COMMON)


def spec_file(directory: Path, uid: str = UID) -> Path:
    return directory / f"k8s.gpu.nvidia.com-claim_{uid}.json"


def test_it_is_a_cdi_store_and_making_one_makes_nothing(store: FileCdiStore, directory: Path) -> None:
    port: CdiStore = store
    assert port.specs() == {}
    port.remove(UID)
    assert not directory.exists()


def test_qualified_names_are_those_of_nvidias_driver_with_the_share_behind(store: FileCdiStore) -> None:
    assert store.qualified(UID, "gpu-0", None) == f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"
    assert store.qualified(UID, "gpu-0", "9e9b") == f"k8s.gpu.nvidia.com/claim={UID}-gpu-0-9e9b"


def test_writes_one_readable_file_and_a_restart_finds_it(store: FileCdiStore, directory: Path) -> None:
    write(store)
    path = spec_file(directory)
    assert [entry.name for entry in directory.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644
    assert directory.stat().st_mode & 0o777 == 0o755
    said = json.loads(path.read_bytes())
    assert (said["cdiVersion"], said["kind"]) == ("0.5.0", "k8s.gpu.nvidia.com/claim")
    assert len(said["containerEdits"]["mounts"]) == 70
    again = FileCdiStore(str(directory), VENDOR)
    assert (again.specs(), again.present(UID)) == ({UID: True}, True)
    before = path.read_bytes()
    write(again)
    assert path.read_bytes() == before
    again.remove(UID)
    again.remove(UID)
    assert (store.specs(), store.present(UID)) == ({}, False)


def test_common_edits_that_change_are_rendered_anew(store: FileCdiStore, directory: Path) -> None:
    write(store)
    store.write(UID, [(f"{UID}-gpu-0", GPU)], ContainerEdits(env=("A=1",)))
    assert json.loads(spec_file(directory).read_bytes())["containerEdits"] == {"env": ["A=1"]}
    write(store)
    assert len(json.loads(spec_file(directory).read_bytes())["containerEdits"]["mounts"]) == 70


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"cdiVersion":"0.5.0","kind":"other/claim","devices":[{"name":"UID-a"}]}',
        b'{"cdiVersion":"0.5.0","kind":"k8s.gpu.nvidia.com/claim","devices":[]}',
        b'{"cdiVersion":"0.5.0","kind":"k8s.gpu.nvidia.com/claim","devices":[{"name":"another-claim-a"}]}',
        b'{"cdiVersion":"0.5.0","kind":"k8s.gpu.nvidia.com/claim","devices":[1]}',
        b'{"kind":"k8s.gpu.nvidia.com/claim","devices":[{"name":"UID-a"}]}',
    ],
)
def test_a_damaged_file_is_not_present_but_ours(store: FileCdiStore, directory: Path, content: bytes) -> None:
    write(store)
    spec_file(directory).write_bytes(content.replace(b"UID", UID.encode()))
    assert not store.present(UID)
    for reader in (store, FileCdiStore(str(directory), VENDOR)):
        assert reader.specs() == {UID: False}
    write(store)
    assert store.present(UID)
    assert store.specs() == {UID: True}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def put_another_in_its_place(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes().replace(b"/lib/7", b"/lib/8"))
    other.rename(path)


@pytest.mark.parametrize("change", [flip_a_bit, put_another_in_its_place])
def test_a_file_that_was_changed_since_it_was_written_is_not_whole(
    store: FileCdiStore, directory: Path, change: Callable[[Path], None]
) -> None:
    write(store)
    path = spec_file(directory)
    whole, times = path.read_bytes(), path.stat()
    change(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == len(whole)
    assert store.specs() == {UID: False}
    write(store)
    assert path.read_bytes() == whole
    assert store.specs() == {UID: True}


def test_what_another_instance_wrote_is_whole_and_not_written_again(store: FileCdiStore, directory: Path) -> None:
    other, path = FileCdiStore(str(directory), VENDOR), spec_file(directory)
    write(store)
    assert other.specs() == {UID: True}
    write(other)
    assert store.specs() == {UID: True}
    again = FileCdiStore(str(directory), VENDOR)
    write(again)  # as at its start, knowing nothing: another file that says the same
    assert store.specs() == {UID: False}
    inode = path.stat().st_ino
    write(store)
    assert path.stat().st_ino == inode
    assert store.specs() == again.specs() == {UID: True}


def test_files_that_nobody_changed_are_not_read_to_look_at_them(store: FileCdiStore, directory: Path) -> None:
    write(store)
    opened: list[object] = []
    looking = True  # a hook stays for ever
    sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if looking and event == "open" else None)
    assert store.specs() == {UID: True}
    assert str(spec_file(directory)) not in opened
    write(store)
    looking = False
    assert str(spec_file(directory)) in opened, "or nothing was seen"


def test_files_of_others_are_neither_seen_nor_touched(store: FileCdiStore, directory: Path) -> None:
    write(store)
    others = [
        "nvidia.com-gpu.json",
        f"k8s.gpu.nvidia.com-claim_{UID}.yaml",
        f"k8s.gpu.nvidia.com-claims_{UID}.json",
        f"k8s.gpu.example.com-claim_{UID}.json",
        "k8s.gpu.nvidia.com-claim_.json",
        "k8s.gpu.nvidia.com-claim_a.b.json",
        ".vendor.json.0123456789abcdef.tmp",
    ]
    for name in others:
        (directory / name).write_bytes(b"theirs")
        os.utime(directory / name, (1, 1))
    left = directory / f".{spec_file(directory).name}.0123456789abcdef.tmp"
    left.write_bytes(b"ours, half")
    os.utime(left, (1, 1))
    assert store.specs() == {UID: True}
    assert store.sweep() == (str(left),)
    store.remove(UID)
    assert sorted(entry.name for entry in directory.iterdir()) == sorted(others)


@pytest.mark.parametrize("bad", ["", "..", "../x", "a/b", "a\n", "a_b", "a.json", "a" * 64])
def test_what_is_no_uid_names_no_file(store: FileCdiStore, directory: Path, bad: str) -> None:
    for attempt in (lambda: write(store, bad), lambda: store.remove(bad), lambda: store.present(bad)):
        with pytest.raises(GiveUp, match="is not a claim UID"):
            attempt()
    assert not directory.exists()


def test_a_device_that_could_collide_with_another_claims_is_refused(store: FileCdiStore) -> None:
    with pytest.raises(GiveUp, match="does not start with the claim's UID"):
        store.write(UID, [("gpu-0", GPU)], COMMON)


def test_edits_that_cdi_cannot_say_are_for_the_user_and_the_old_file_stays(
    store: FileCdiStore, directory: Path
) -> None:
    write(store)
    before = spec_file(directory).read_bytes()
    with pytest.raises(TellUser, match=rf"writing the CDI spec of claim {UID}: .*not absolute.*; check"):
        write(store, edits=ContainerEdits(device_nodes=(DeviceNode("nvidia0"),)))
    with pytest.raises(TellUser, match="is not a CDI vendor"):
        write(FileCdiStore(str(directory), "8ung"))
    assert spec_file(directory).read_bytes() == before


def test_a_full_file_system_keeps_the_old_spec(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mount is not allowed here")
    try:
        store = FileCdiStore(str(tmp_path), VENDOR)
        write(store)

        def fill() -> None:
            for number in range(10):
                write(store, f"claim-{number}")

        with pytest.raises(RetryLater, match="no space"):
            fill()
        assert store.present(UID)
        assert all(store.present(uid) for uid in store.specs())
        assert not list(tmp_path.glob(".*"))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


WRITER = """
import sys
from dra_driver.cdi.store import FileCdiStore
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
store, n = FileCdiStore(sys.argv[1], "k8s.gpu.nvidia.com"), 0
gpu = ContainerEdits(device_nodes=(DeviceNode("/dev/nvidia0"),))
while True:
    n += 1
    common = ContainerEdits(mounts=tuple(Mount(f"/l/{i}", f"/l/{i}") for i in range(n % 200)))
    store.write("claim-a", [(f"claim-a-gpu-{i}", gpu) for i in range(1 + n % 9)], common)
"""


def test_a_reader_like_the_container_runtime_never_sees_half_a_spec(store: FileCdiStore, directory: Path) -> None:
    """Reads every *.json and *.yaml of the directory, as a CDI cache does, while writers are killed."""
    reads = 0
    for round_number in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)])
        try:
            until = time.monotonic() + 10
            while not store.present("claim-a"):
                assert time.monotonic() < until
                time.sleep(0.005)
            until = time.monotonic() + 0.12 + round_number * 0.0137
            while time.monotonic() < until:
                for path in directory.iterdir():
                    if path.suffix in (".json", ".yaml"):
                        assert json.loads(path.read_bytes())["kind"] == "k8s.gpu.nvidia.com/claim"
                        reads += 1
                assert store.present("claim-a")
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    assert reads > 20
    assert store.specs() == {"claim-a": True}
