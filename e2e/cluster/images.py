"""Container images as docker-archive files, made of files of this machine. No registry, no container tool."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster import ClusterError
from e2e.cluster.prerequisites import busybox

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNTS: dict[str, Path | bytes] = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}


@dataclass(frozen=True, slots=True)
class Image:
    """One layer. Paths are relative to the image's root; the same contents give the same archive, byte for byte."""

    tag: str  # "e2e/busybox:1"
    files: Mapping[str, Path | bytes]
    links: Mapping[str, str] = field(default_factory=dict)  # symbolic; path -> target
    directories: Mapping[str, int] = field(default_factory=dict)  # empty ones; path -> mode
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()

    def write(self, archive: Path) -> Path:
        layer = self._layer()
        digest = hashlib.sha256(layer).hexdigest()
        process: dict[str, object] = {"Env": [PATH], "Entrypoint": list(self.entrypoint), "Cmd": list(self.command)}
        configuration = {
            "architecture": ARCHITECTURE.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": process,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [self.tag], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as tar:
            _add(tar, "config.json", json.dumps(configuration).encode())
            _add(tar, "layer.tar", layer)
            _add(tar, "manifest.json", json.dumps(manifest).encode())
        return archive

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            made: set[str] = set()
            for path in sorted({*self.files, *self.links, *self.directories}):
                for parent in [*reversed(Path(path).parents)][1:]:
                    if str(parent) not in made and str(parent) not in self.directories:
                        made.add(str(parent))
                        _add_directory(tar, str(parent), 0o755)
                if path in self.directories:
                    _add_directory(tar, path, self.directories[path])
                elif path in self.links:
                    link = tarfile.TarInfo(path)
                    link.type, link.linkname = tarfile.SYMTYPE, self.links[path]
                    tar.addfile(link)
                else:
                    source = self.files[path]
                    content = source if isinstance(source, bytes) else source.read_bytes()
                    executable = isinstance(source, Path) and source.stat().st_mode & 0o111
                    _add(tar, path, content, 0o755 if executable else 0o644)
        return buffer.getvalue()


def pause(program: Path) -> Image:
    return Image("e2e/pause:1", {"pause": program}, entrypoint=("/pause",))


def busybox_image() -> Image:
    """Every applet in /bin; runs `sh`."""
    program = busybox()
    if program is None:
        raise ClusterError("making image e2e/busybox:1: there is no static busybox; install busybox-static")
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return Image(
        "e2e/busybox:1",
        {"bin/busybox": program, **ACCOUNTS},
        links={f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"},
        directories={"tmp": 0o1777, "root": 0o700},
        command=("sh",),
    )


def glibc_image() -> Image:
    """The host's glibc, its ldconfig and a few programs that load libraries: what a CDI hook finds in most images."""
    programs = [Path(path) for name in ("sh", "ls", "cat", "sleep", "env", "ldconfig") if (path := _find(name))]
    files: dict[str, Path | bytes] = {**ACCOUNTS, "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n"}
    for program in programs:
        files[f"bin/{program.name}"] = program
        files |= {str(library).lstrip("/"): library for library in _libraries(program)}
    # Merged /usr, as distributions have it, would hide the loader's fixed path; here each file is where it is asked for.
    return Image(
        "e2e/glibc:1",
        files,
        links={"sbin/ldconfig": "/bin/ldconfig"},
        directories={"tmp": 0o1777, "root": 0o700, "etc/ld.so.conf.d": 0o755},
        command=("sh",),
    )


def _find(name: str) -> str | None:
    for directory in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        if (Path(directory) / name).exists():
            return f"{directory}/{name}"
    return None


def _libraries(program: Path) -> list[Path]:
    """Absolute paths that `ldd` lists: "libc.so.6 => /lib/x/libc.so.6 (0x..)" and "/lib64/ld-linux-x86-64.so.2 (0x..)"."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [Path(word) for word in listed.split() if word.startswith("/")]


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _add_directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)
