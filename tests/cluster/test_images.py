from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from e2e.cluster.images import Image

IMAGE = Image(
    "e2e/x:1",
    {"bin/x": Path("/bin/sh"), "etc/passwd": b"root:x:0:0::/:/bin/x\n"},
    links={"bin/y": "x"},
    directories={"tmp": 0o1777},
    command=("x",),
)


def test_the_archive_is_what_docker_save_writes(tmp_path: Path) -> None:
    with tarfile.open(IMAGE.write(tmp_path / "x.tar")) as archive:
        parts = {entry.name: file.read() for entry in archive if (file := archive.extractfile(entry))}
    (manifest,) = json.loads(parts["manifest.json"])
    assert manifest["RepoTags"] == ["e2e/x:1"]
    (layer,) = manifest["Layers"]
    configuration = json.loads(parts[manifest["Config"]])
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(parts[layer]).hexdigest()}"]
    assert configuration["config"]["Cmd"] == ["x"]

    with tarfile.open(fileobj=io.BytesIO(parts[layer])) as tar:
        entries = {entry.name: entry for entry in tar}
    assert list(entries) == ["bin", "bin/x", "bin/y", "etc", "etc/passwd", "tmp"]
    assert entries["bin/x"].mode == 0o755
    assert entries["etc/passwd"].mode == 0o644
    assert entries["bin/y"].linkname == "x"
    assert entries["tmp"].isdir()
    assert entries["tmp"].mode == 0o1777


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    first, second = IMAGE.write(tmp_path / "1.tar"), IMAGE.write(tmp_path / "2.tar")
    assert first.read_bytes() == second.read_bytes()
