"""The hook that has the host's ldconfig make the loader cache: run for real, against roots in a temporary directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dra_driver.hardware.library_cache import SCRIPT, find_host_tools

TOOLS = find_host_tools("/")
SHELLS = [shell for shell in ("/bin/sh", "/usr/bin/dash", "/bin/bash") if os.path.exists(shell)]
needs_ldconfig = pytest.mark.skipif(not TOOLS.ldconfig, reason="this machine has no ldconfig program")
DIRECTORY = "/opt/nv/lib"


def _library() -> Path:
    """Any real shared library: ldconfig reads its SONAME."""
    for directory in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib"):
        for path in sorted(Path(directory).glob("libz.so.1*")) + sorted(Path(directory).glob("libcrypt.so.*")):
            return path.resolve()
    pytest.skip("no shared library with a known SONAME on this machine")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A container's root after the mounts: a library under its full name, and nothing that points to it."""
    root = tmp_path / "rootfs"
    (root / "etc").mkdir(parents=True)
    (root / DIRECTORY.lstrip("/")).mkdir(parents=True)
    library = _library()
    shutil.copy(library, root / DIRECTORY.lstrip("/") / (library.name.split(".so")[0] + ".so.580.126.20"))
    return root


def run(
    cwd: Path | str, state: object = None, *links: str, shell: str = "/bin/sh", ldconfig: str = ""
) -> subprocess.CompletedProcess[str]:
    text = (
        state if isinstance(state, str) else json.dumps({"ociVersion": "1.2.0", "id": "c"} if state is None else state)
    )
    return subprocess.run(
        [shell, "-c", SCRIPT, "gpu-libraries", ldconfig or TOOLS.ldconfig, *links, DIRECTORY],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        check=False,
        timeout=60,
    )


def made(root: Path) -> bool:
    return (root / "etc/ld.so.cache").exists()


@needs_ldconfig
@pytest.mark.parametrize("shell", SHELLS)
def test_in_the_container_root_it_makes_soname_links_and_the_cache(image: Path, shell: str) -> None:
    done = run(image, shell=shell)
    assert done.returncode == 0, done.stderr
    assert (image / "etc/ld.so.cache").read_bytes().count(DIRECTORY.encode()) >= 1
    links = [path.name for path in (image / DIRECTORY.lstrip("/")).iterdir() if path.is_symlink()]
    assert len(links) == 1


@needs_ldconfig
def test_in_the_bundle_it_enters_the_root_that_the_state_names(image: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "userdata"
    bundle.mkdir()
    state = {
        "ociVersion": "1.0",
        "id": "c",
        "pid": 7,
        "root": str(image),
        "bundle": str(bundle),
        "annotations": {"root": "/"},
    }
    done = run(bundle, json.dumps(state, indent=4))
    assert (done.returncode, made(image)) == (0, True), done.stderr


@needs_ldconfig
def test_in_a_bundle_with_rootfs_it_enters_that(image: Path) -> None:
    done = run(image.parent, {"id": "c", "bundle": str(image.parent)})
    assert (done.returncode, made(image)) == (0, True), done.stderr


@needs_ldconfig
def test_a_rootfs_inside_an_image_is_not_entered(image: Path) -> None:
    inner = image / "rootfs"
    (inner / "etc").mkdir(parents=True)
    run(image, {"id": "c", "bundle": "/run/elsewhere"})
    assert made(image)
    assert not made(inner)


@needs_ldconfig
def test_a_rootfs_that_is_a_link_is_not_followed(tmp_path: Path, image: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "rootfs").symlink_to(image)
    done = run(bundle, {"id": "c", "bundle": str(bundle)})
    assert done.returncode == 0
    assert not made(image)


@needs_ldconfig
def test_an_annotation_cannot_choose_the_directory(image: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "etc").mkdir(parents=True)
    done = run(image, {"id": "c", "pid": 1, "annotations": {"root": str(victim), "bundle": str(victim)}})
    assert done.returncode == 0
    assert made(image)
    assert not made(victim)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_refuses_the_root_of_the_host(shell: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    fake = tmp_path / "ldconfig"
    fake.write_text(f"#!/bin/sh\necho >{marker}\n")
    fake.chmod(0o755)
    done = run("/", {"id": "c"}, shell=shell, ldconfig=str(fake))
    assert done.returncode == 0
    assert "refusing" in done.stderr
    assert not marker.exists()
    assert not run("/", {"id": "c", "root": "/"}, shell=shell, ldconfig=str(fake)).stdout
    assert not marker.exists()


@needs_ldconfig
def test_an_image_without_etc_is_left_alone(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["", "not JSON", '{"root": ', '{"root": "/does/not/exist"}'])
def test_it_never_fails_the_container(tmp_path: Path, state: str) -> None:
    (tmp_path / "etc").mkdir()
    assert run(tmp_path, state, ldconfig="/bin/false").returncode == 0


def test_a_missing_or_failing_ldconfig_is_said_and_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for ldconfig in ("/no/such/ldconfig", "/bin/false"):
        done = run(tmp_path, ldconfig=ldconfig)
        assert done.returncode == 0
        assert ldconfig in done.stderr


@needs_ldconfig
def test_links_of_the_image_do_not_lead_ldconfig_out_of_it(image: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may chroot, which is what keeps ldconfig inside")
    victim = tmp_path / "victim"
    victim.mkdir()
    shutil.rmtree(image / "etc")
    (image / "etc").symlink_to(victim)
    run(image)
    assert list(victim.iterdir()) == []


@needs_ldconfig
def test_further_names_become_links_that_the_cache_lists(image: Path) -> None:
    directory = image / DIRECTORY.lstrip("/")
    (library,) = (path.name for path in directory.iterdir())
    plain = library.split(".so")[0] + ".so"
    (directory / plain).symlink_to("stale")
    done = run(image, None, f"{library}::{DIRECTORY}/{plain}")
    assert done.returncode == 0, done.stderr
    assert os.readlink(directory / plain) == library
    assert f"{DIRECTORY}/{plain}\0".encode() in (image / "etc/ld.so.cache").read_bytes()


def test_a_file_of_the_image_under_a_further_name_is_left_alone(image: Path) -> None:
    plain = image / DIRECTORY.lstrip("/") / "libcuda.so"
    plain.write_text("the image's own")
    run(image, None, f"libcuda.so.1::{DIRECTORY}/libcuda.so", ldconfig="/bin/true")
    assert plain.read_text() == "the image's own"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("absolute", [True, False])
def test_no_link_is_made_where_links_of_the_image_lead_out_of_it(
    image: Path, tmp_path: Path, shell: str, absolute: bool
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (image / "evil").symlink_to(victim if absolute else "../victim")
    done = run(image, None, "x::/evil/pwned", "x::/evil/../../pwned", shell=shell, ldconfig="/bin/true")
    assert done.returncode == 0
    assert list(victim.iterdir()) == []
    assert not (tmp_path / "pwned").is_symlink()
