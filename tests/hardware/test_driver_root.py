"""Driver roots: links stay inside, directories do not pass for libraries, and each path has two names."""

from __future__ import annotations

import struct

import pytest
from fake_host import FakeHost

from dra_driver.hardware.driver_root import (
    DriverRoot,
    find_dev_root,
    find_driver_root,
    find_library,
    library_directories,
    on_host,
    resolve,
)
from dra_driver.hardware.ld_so_cache import library_paths
from dra_driver.model.errors import TellUser


def test_an_absolute_link_is_followed_inside_the_root(host: FakeHost) -> None:
    host.write("/usr/lib64/nvidia/libcuda.so.580.1").link(
        "/etc/alternatives/cuda", "/usr/lib64/nvidia/libcuda.so.580.1"
    )
    host.link("/usr/lib64/libcuda.so.1", "/etc/alternatives/cuda")
    assert resolve(host.root, "/usr/lib64/libcuda.so.1") == "/usr/lib64/nvidia/libcuda.so.580.1"


def test_a_link_cannot_climb_out_of_the_root(host: FakeHost) -> None:
    host.write("/etc/passwd").link("/usr/escape", "../../../../../../etc/passwd")
    assert resolve(host.root, "/usr/escape") == "/etc/passwd"
    host.link("/usr/nowhere", "../../../../../../etc/shadow")
    assert resolve(host.root, "/usr/nowhere") is None


def test_a_link_that_loops_leads_nowhere(host: FakeHost) -> None:
    host.link("/a", "b").link("/b", "a")
    assert resolve(host.root, "/a") is None


def test_a_merged_usr_gives_one_library_directory(host: FakeHost) -> None:
    host.write("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1").link("/lib", "usr/lib")
    found = library_directories(host.root)
    assert found.count("/usr/lib/x86_64-linux-gnu") == 1
    assert "/lib/x86_64-linux-gnu" not in found


def test_a_directory_does_not_hide_the_library_in_the_next_place(host: FakeHost) -> None:
    (host.path / "usr/lib64/libnvidia-ml.so.1").mkdir(parents=True)
    host.write("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert find_library(host.root, "libnvidia-ml.so.1") == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("root", "directory"),
    [
        ("/", "/usr/lib/x86_64-linux-gnu"),
        ("/run/nvidia/driver", "/run/nvidia/driver/usr/lib64"),
        ("/home/kubernetes/bin/nvidia", "/home/kubernetes/bin/nvidia/lib64"),
    ],
)
def test_the_driver_root_is_found_in_the_known_layouts(host: FakeHost, root: str, directory: str) -> None:
    host.driver(directory)
    found = find_driver_root(prefix=host.root)
    assert found.host == root
    assert found.seen.rstrip("/") == (host.root + root).rstrip("/")


def test_without_a_driver_the_error_lists_where_it_looked(host: FakeHost) -> None:
    with pytest.raises(TellUser) as caught:
        find_driver_root(prefix=host.root)
    for place in ("/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "usr/lib64", host.root):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    ("host_root", "path", "expected"),
    [
        ("/", "/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        ("/run/nvidia/driver", "/usr/bin/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi"),
        ("/run/nvidia/driver/", "usr/bin/nvidia-smi", "/run/nvidia/driver/usr/bin/nvidia-smi"),
    ],
)
def test_a_path_in_the_root_gets_its_name_on_the_host(host_root: str, path: str, expected: str) -> None:
    assert on_host(host_root, path) == expected


def test_the_operators_driver_container_brings_its_own_device_nodes(host: FakeHost) -> None:
    root = DriverRoot(host="/run/nvidia/driver", seen=host.root)
    assert find_dev_root(root) == "/"
    host.nodes("nvidiactl")
    assert find_dev_root(root) == "/run/nvidia/driver"
    assert find_dev_root(DriverRoot(host="/", seen=host.root)) == "/"


def _cache(entries: list[tuple[int, str, str]], *, old: bool) -> bytes:
    head = 48 + 24 * len(entries)
    strings = b""
    rows = b""
    for flags, name, path in entries:
        key = head + len(strings)
        strings += name.encode() + b"\0"
        value = head + len(strings)
        strings += path.encode() + b"\0"
        rows += struct.pack("<IIIIQ", flags, key, value, 0, 0)
    new = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + bytes(20) + rows + strings
    return b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12) + bytes(4) + new if old else new


@pytest.mark.parametrize("old", [False, True])
def test_the_loader_cache_tells_where_the_64_bit_library_is(old: bool) -> None:
    cache = _cache(
        [
            (0x0303, "libcuda.so.1", "/opt/nv/lib/libcuda.so.1"),
            (0x0003, "libcuda.so.1", "/opt/nv/lib32/libcuda.so.1"),
            (0x0303, "libcuda.so.12", "/opt/other/libcuda.so.12"),
        ],
        old=old,
    )
    assert library_paths(cache, "libcuda.so.1") == ("/opt/nv/lib/libcuda.so.1",)


@pytest.mark.parametrize(
    "cache", [b"", b"nonsense", b"ld.so-1.7.0\0\xff\xff\xff\xff", b"glibc-ld.so.cache1.1\xff\xff\xff\xff"]
)
def test_a_loader_cache_of_another_format_tells_nothing(cache: bytes) -> None:
    assert library_paths(cache, "libcuda.so.1") == ()


def test_a_driver_in_an_unforeseen_directory_is_found_through_the_loader_cache(host: FakeHost) -> None:
    host.driver("/opt/nv/lib")
    host.write("/etc/ld.so.cache", content=_cache([(0x0303, "libcuda.so.1", "/opt/nv/lib/libcuda.so.1")], old=False))
    assert find_library(host.root, "libcuda.so.1") == "/opt/nv/lib/libcuda.so.580.126.20"
