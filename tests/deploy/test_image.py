"""What the image's root is made of. The whole image is tried in test_installed.py."""

from __future__ import annotations

import importlib.metadata
import json
import os
import tarfile
from pathlib import Path

import pytest

from deploy.image import debian, sbom
from deploy.image.errors import ImageError
from deploy.image.interpreter import put_libraries, put_python
from deploy.image.packages import put_packages
from deploy.image.root import Parts, make_root
from e2e.driver_image import driver_image, image

LIVE = pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set")


def test_an_interpreter_is_whole_without_what_only_builds_or_teaches(tmp_path: Path) -> None:
    import subprocess

    python = tmp_path / put_python(tmp_path)
    libraries = put_libraries(tmp_path)
    assert any(path.name.startswith("libc.so") for path in libraries)
    program = "import ssl, ctypes, json, hashlib, sys; print(sys.prefix)"
    beside = next(tmp_path.glob("lib/*/libc.so.6")).parent
    done = subprocess.run(
        [python, "-BIS", "-c", program],
        env={"LD_LIBRARY_PATH": str(beside)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "usr")
    for absent in ("test", "idlelib", "ensurepip", "tkinter", "lib2to3", "site-packages"):
        assert not list(tmp_path.glob(f"usr/lib/python3*/{absent}"))
    # A driver library of any age finds what it is linked with.
    assert {"libdl.so.2", "libpthread.so.0", "librt.so.1"} <= {path.name for path in beside.iterdir()}


def test_what_is_left_out_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    with pytest.raises(ImageError, match="leaving out kubernetes/aio: it is not there"):
        put_packages(tmp_path / "root", tmp_path / "packages", tmp_path)


def test_a_root_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="it exists; remove it"):
        make_root(tmp_path, Parts(tmp_path, tmp_path, None), 0)


def test_the_bill_of_materials_names_everything_once_and_always_the_same() -> None:
    installed = [importlib.metadata.distribution(name) for name in ("pydantic", "grpcio", "PyYAML")]
    package = debian.Package("", {"Package": "libc6", "Version": "1:2.36-9+deb12u4", "Architecture": "amd64"})
    made = sbom.document(installed, [package])
    assert json.dumps(made) == json.dumps(sbom.document(installed, [package]))
    components = made["components"]
    by_purl = {component["purl"].partition("@")[0]: component for component in components}
    assert set(by_purl) == {
        "pkg:generic/python",
        "pkg:pypi/pydantic",
        "pkg:pypi/grpcio",
        "pkg:pypi/pyyaml",
        "pkg:deb/debian/libc6",
    }
    assert by_purl["pkg:deb/debian/libc6"]["purl"].endswith("@1%3A2.36-9%2Bdeb12u4?arch=amd64")
    assert by_purl["pkg:pypi/pydantic"]["licenses"] == [{"license": {"name": "MIT"}}]
    assert len({component["bom-ref"] for component in components}) == len(components)


def test_packages_are_found_under_every_name_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "info" / "libc6:amd64.list").write_text("/.\n/lib/x86_64-linux-gnu/libc.so.6\n")
    (tmp_path / "info" / "other.list").write_text("/usr/bin/other\n")
    (tmp_path / "status").write_text(
        "Package: libc6\nVersion: 2\nDescription: C\n more:\n\nPackage: other\nVersion: 1\n\nPackage: gone\n"
    )
    for name in ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"):
        assert [package.name for package in debian.owners([Path(name)], tmp_path)] == ["libc6"]
    assert debian.owners([Path("/usr/local/lib/libpython3.so")], tmp_path) == []
    assert debian.owners([Path("/bin/sh")], tmp_path / "not-debian") == []


def test_an_archive_keeps_links_modes_and_empty_directories(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/program").write_text("x")
    (root / "usr/bin/program").chmod(0o755)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "run").symlink_to("/tmp")
    archive = image("a:1", root).write(tmp_path / "a.tar")
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("layer.tar")
        with tarfile.open(fileobj=layer) as inner:
            members = {member.name: member for member in inner}
    assert members["usr/bin/program"].mode == 0o755
    assert (members["tmp"].mode, members["tmp"].isdir()) == (0o1777, True)
    assert members["run"].linkname == "/tmp"


@LIVE
@pytest.mark.timeout(900)  # Python packages and a C compiler are fetched
def test_the_image_is_small_and_holds_nothing_that_builds_or_interprets_but_python() -> None:
    archive = driver_image("dra-driver-e2e:chart")
    with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile("layer.tar")) as inner:
        members = list(inner)
    files = [member for member in members if member.isfile()]
    assert sum(member.size for member in files) < 220 * 2**20
    programs = {member.name for member in files if member.name.startswith(("usr/bin/", "bin/", "usr/sbin/", "sbin/"))}
    assert {name.rstrip("0123456789.") for name in programs} == {"usr/bin/dra-driver", "usr/bin/python"}
    names = {member.name for member in members}
    assert not [
        name for name in names if "/pip/" in name or "ziglang" in name or name.endswith(("/gcc", "/sh", "/bash"))
    ]
    sources = {name for name in names if name.startswith("opt/dra-driver/dra_driver/") and name.endswith(".py")}
    compiled = {name for name in names if name.startswith("opt/dra-driver/dra_driver/") and name.endswith(".pyc")}
    assert len(compiled) == len(sources) > 100
    assert [name for name in names if "/hardware/sim/nvidia-smi-" in name]
    assert sbom.PLACE in names
