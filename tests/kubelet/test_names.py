from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from dra_driver.kubelet.names import MAX_SOCKET_PATH_BYTES, socket_names, unpublished
from dra_driver.model.errors import TellUser

PLUGINS = Path("/var/lib/kubelet/plugins")
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
UID = "0b4b1c3e-9a55-4f0e-8a2a-3f4a3f6b2c11"


def h(text: str, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:length]).decode().rstrip("=")


def test_the_only_instance_has_the_well_known_names() -> None:
    names = socket_names("gpu.nvidia.com", PLUGINS, REGISTRY)
    assert str(names.dra_socket) == "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock"
    assert str(names.registration_socket) == "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"
    assert names.lock_file.parent == names.data_dir


def test_an_instance_has_its_pod_uid_in_both_names() -> None:
    names = socket_names("gpu.nvidia.com", PLUGINS, REGISTRY, UID)
    assert names.dra_socket.name == f"dra-{UID}.sock"
    assert names.registration_socket.name == f"gpu.nvidia.com-{UID}-reg.sock"


def test_a_long_driver_name_hashes_the_uid_in_the_registration_socket() -> None:
    driver = "gpu-with-a-rather-long-name.nvidia.com"
    assert socket_names(driver, PLUGINS, REGISTRY, UID).registration_socket.name == f"{driver}-{h(UID, 8)}-reg.sock"


def test_the_longest_driver_name_hashes_driver_and_uid() -> None:
    driver = "a" * 63
    names = socket_names(driver, PLUGINS, REGISTRY, UID)
    assert names.registration_socket.name == f"dra-{h(driver + chr(0) + UID, 16)}-reg.sock"
    # Upstream has no hashed form of this one: dra-<uid>.sock would have 134 bytes here.
    assert names.dra_socket.name == f"dra-{h(UID, 6)}.sock"


def test_all_names_of_the_longest_driver_name_fit() -> None:
    names = socket_names("a" * 63, PLUGINS, REGISTRY, UID)
    assert max(len(str(path)) for path in (names.dra_socket, names.registration_socket)) <= MAX_SOCKET_PATH_BYTES


@pytest.mark.parametrize("over", [1, 12])
def test_a_path_that_is_too_long_says_how_many_bytes_are_too_many(over: int) -> None:
    fixed = len("/") + len("/d/dra.sock")
    plugins = Path("/" + "p" * (MAX_SOCKET_PATH_BYTES - fixed + over))
    with pytest.raises(
        TellUser, match=rf"{MAX_SOCKET_PATH_BYTES + over} bytes .* {over} too many.*{over} bytes shorter"
    ):
        socket_names("d", plugins, REGISTRY)


def test_a_path_of_exactly_the_longest_length_is_taken() -> None:
    plugins = Path("/" + "p" * (MAX_SOCKET_PATH_BYTES - len("/") - len("/d/dra.sock")))
    assert len(str(socket_names("d", plugins, REGISTRY).dra_socket)) == MAX_SOCKET_PATH_BYTES


def test_length_is_counted_in_bytes_not_characters() -> None:
    plugins = Path("/" + "ü" * 60)
    with pytest.raises(TellUser, match="too many"):
        socket_names("d", plugins, REGISTRY)


@pytest.mark.parametrize("driver", ["", "GPU", "gpu/nvidia", "-gpu", "gpu..com", "a" * 64, "../gpu"])
def test_a_malformed_driver_name_is_refused(driver: str) -> None:
    with pytest.raises(TellUser, match="driver name"):
        socket_names(driver, PLUGINS, REGISTRY)


@pytest.mark.parametrize("instance", ["", "a/b", "../x", "a b"])
def test_a_malformed_instance_is_refused(instance: str) -> None:
    with pytest.raises(TellUser, match="POD_UID"):
        socket_names("gpu.nvidia.com", PLUGINS, REGISTRY, instance)


def test_the_unpublished_name_is_ignored_by_the_kubelet_and_is_never_longer() -> None:
    for instance in (None, UID):
        names = socket_names("gpu.nvidia.com", PLUGINS, REGISTRY, instance)
        for path in (names.dra_socket, names.registration_socket):
            hidden = unpublished(path)
            assert hidden.parent == path.parent
            assert hidden.name.startswith(".")
            assert len(hidden.name) <= len(path.name)
            assert hidden.parent != names.data_dir or names.is_of_an_instance(hidden)


def test_only_sockets_that_this_driver_alone_makes_count_as_its_litter() -> None:
    names = socket_names("gpu.nvidia.com", PLUGINS, REGISTRY)
    theirs = [
        REGISTRY / f"other.com-{UID}-reg.sock",
        REGISTRY / f"gpu.nvidia.com-x-{UID}-reg.sock",
        REGISTRY / f"gpuxnvidia.com-{UID}-reg.sock",
        REGISTRY / "gpu.nvidia.com-reg.sock",
        REGISTRY / ".dra-abc",
        REGISTRY / f"dra-{UID}.sock",
        names.data_dir / "dra.sock",
        names.data_dir / "mps.sock",
    ]
    assert [path for path in theirs if names.is_of_an_instance(path)] == []
    assert names.is_of_an_instance(REGISTRY / f"gpu.nvidia.com-{UID}-reg.sock")
    assert names.is_of_an_instance(names.data_dir / f"dra-{UID}.sock")
