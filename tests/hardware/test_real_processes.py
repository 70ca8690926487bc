"""With real programs where this machine has them: a container of runc that loads a library, and a compiled NVML."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from dra_driver.hardware.driver_search import Installation, Item
from dra_driver.hardware.library_cache import find_host_tools, ldconfig_edits
from dra_driver.hardware.nvml import NvmlHardware
from dra_driver.hardware.roots import HostRoots

CC = shutil.which("cc")
# The e2e suite builds runc and keeps it there.
RUNC = shutil.which("runc") or next(
    (str(path) for path in sorted((Path.home() / ".cache/dra-driver-e2e/bin").glob("runc*/runc"))), None
)
TOOLS = find_host_tools("/")

needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler")
needs_runc = pytest.mark.skipif(
    RUNC is None or os.geteuid() != 0 or not TOOLS.ldconfig, reason="needs runc, root and the host's ldconfig"
)

DIRECTORY = "/opt/nv/lib"
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) printf("%s %s\\n", argv[i], dlopen(argv[i], RTLD_NOW) ? "found" : dlerror());
  return 0;
}
"""
NVML = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { strncpy(to, VERSION, size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *to) { *to = COUNT; return FAIL; }
"""


def compile_c(source: str, to: Path, *flags: str) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    code = to.with_suffix(".c")
    code.write_text(source)
    subprocess.run([str(CC), "-o", str(to), str(code), *flags], check=True, timeout=60)
    code.unlink()


def library(to: Path, soname: str, source: str = "int cuInit(unsigned f) { return 0; }", *flags: str) -> None:
    compile_c(source, to, "-shared", "-fPIC", f"-Wl,-soname,{soname}", *flags)


@needs_compiler
@needs_runc
@pytest.mark.parametrize("read_only", [False, True])
def test_a_program_in_a_container_loads_the_libraries_by_soname_and_by_plain_name(
    tmp_path: Path, read_only: bool
) -> None:
    rootfs = tmp_path / "bundle/rootfs"
    for directory in ("etc", "proc", "dev", "bin"):
        (rootfs / directory).mkdir(parents=True)
    compile_c(PROGRAM, rootfs / "bin/program", "-ldl")
    _copy_libraries(rootfs / "bin/program", rootfs)
    name = "libcuda.so.580.126.20"
    library(tmp_path / name, "libcuda.so.1")
    target = f"{DIRECTORY}/{name}"
    found = Installation(
        version="580.126.20",
        libraries=(Item(target, target),),
        sonames=(),
        extra_names=(Item(target, f"{DIRECTORY}/libcuda.so"),),
        files=(),
        sockets=(),
        watched=(),
    )
    (hook,) = ldconfig_edits(TOOLS, found).hooks
    names = ("libcuda.so.1", "libcuda.so")

    def output(hooks: Sequence[dict[str, object]]) -> list[str]:
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/program", *names], "cwd": "/"},
            "root": {"path": "rootfs", "readonly": read_only},
            "annotations": {"root": "/", "bundle": "/"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": target, "type": "bind", "source": str(tmp_path / name), "options": ["ro", "rbind"]},
            ],
            "hooks": {"createContainer": list(hooks)},
            "linux": {"namespaces": [{"type": "mount"}, {"type": "uts"}, {"type": "ipc"}]},
        }
        (tmp_path / "bundle/config.json").write_text(json.dumps(config))
        command = [
            str(RUNC),
            "--root",
            str(tmp_path / "state"),
            "run",
            "-b",
            str(tmp_path / "bundle"),
            uuid.uuid4().hex,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if "operation not permitted" in done.stderr:
            pytest.skip(f"this machine does not let runc make a container: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert not any(line.endswith("found") for line in output([])), "without the hook they are not found"
    spec = {"path": hook.path, "args": list(hook.args), "env": list(hook.env)}
    assert output([spec]) == [f"{name} found" for name in names]
    assert output([spec, spec]) == [f"{name} found" for name in names], "two claims, two hooks"


def _copy_libraries(program: Path, rootfs: Path) -> None:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True, timeout=60).stdout
    for word in listed.split():
        if word.startswith("/"):
            to = rootfs / word.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(word), to)


@needs_compiler
def test_a_compiled_library_is_loaded_from_the_driver_root_and_anew_after_an_upgrade(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib64"

    def install(version: str, count: int, fail: int = 0) -> None:
        flags = (f'-DVERSION="{version}"', f"-DCOUNT={count}", f"-DFAIL={fail}")
        library(libraries / f"libnvidia-ml.so.{version}", "libnvidia-ml.so.1", NVML, *flags)
        link = libraries / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")

    install("570.1", 0, fail=18)  # the kernel module is of another version already
    hardware = NvmlHardware(HostRoots(driver=str(tmp_path)))
    assert "different versions" in (hardware.inventory().driver_problem or "")
    install("580.1", 0)
    assert hardware.inventory().driver_problem is None
    install("590.1", 2)
    assert hardware.inventory().problems == (), "nothing is loaded anew while all is well"
    hardware.stop()
    problems = hardware.inventory().problems
    assert [problem.where for problem in problems] == ["GPU index 0", "GPU index 1"]
    assert "does not have the function" in problems[0].why
    hardware.stop()
