from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, build, golang
from e2e.cluster.golang import Go
from e2e.cluster.parts import (
    BESIDE,
    CHART,
    KIND,
    KUBERNETES,
    NODE_IMAGE,
    OLD_RUNTIME,
    PROGRAMS,
    RUNC,
    oldest_go,
    release,
)
from e2e.cluster.prerequisites import interpreted


def test_every_program_is_a_tool_of_its_module() -> None:
    for program in (*PROGRAMS, *OLD_RUNTIME, *CHART, *KIND, *NODE_IMAGE, *BESIDE):
        if program.package == ".":
            assert (program.module.directory / "main.go").exists()
            continue
        assert program.package in (program.module.directory / "go.mod").read_text().split()
        assert (program.module.directory / "go.sum").exists()
    together = (*PROGRAMS, *OLD_RUNTIME, *KIND, *NODE_IMAGE)
    assert len({program.name for program in together}) == len(together)


def test_versions_come_from_the_modules() -> None:
    assert KUBERNETES.version.startswith("v1.37.")
    assert f"gitVersion={KUBERNETES.version}" in " ".join(KUBERNETES.flags)
    assert "gitMinor=37" in " ".join(KUBERNETES.flags)
    assert "seccomp" in " ".join(RUNC.flags)


def test_releases_compare_as_numbers() -> None:
    assert release("go1.26.10") > release("1.26.6") > release("1.9")
    assert release(oldest_go()) >= (1, 26)


def test_the_cache_knows_by_which_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ones, others = build.places(PROGRAMS, "go1.26.8"), build.places(PROGRAMS, "go1.27.3")
    assert ones.keys() == others.keys() == {program.name for program in PROGRAMS} | {"pause"}
    assert all(ones[program.name] != others[program.name] for program in PROGRAMS)
    assert ones["pause"] == others["pause"]
    assert all(place.is_relative_to(tmp_path) for place in ones.values())


def test_an_empty_home_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert golang.cache_directory().is_absolute()
    assert Go(Path("go"), "go1.26.8").environment(cgo=False)["HOME"]


def test_what_a_killed_build_left_is_not_taken_for_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = build.places([], "go1.26.8")["pause"]
    left = place.parent / ".unfinished-x"
    left.mkdir(parents=True)
    (left / "pause").write_text("half")
    assert build.missing([], "go1.26.8") == ["pause"]
    if shutil.which("gcc") is None:
        pytest.skip("no compiler")
    try:
        build.build([], Go(Path("go"), "go1.26.8"))
    except ClusterError as error:
        pytest.skip(f"no static libc: {error}")
    assert [file.name for file in place.parent.iterdir()] == ["pause"]
    assert build.missing([], "go1.26.8") == []


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="building with"):
        build.build(PROGRAMS[:1], Go(Path("/bin/false"), "go1.26.8"))
    assert [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "build.lock"] == []


def test_programs_that_need_a_loader_are_told_from_static_ones() -> None:
    assert interpreted(Path("/bin/sh").resolve())
    static = shutil.which("busybox")
    if static is None or sys.maxsize < 2**32:
        pytest.skip("nothing static here")
    assert not interpreted(Path(static))
