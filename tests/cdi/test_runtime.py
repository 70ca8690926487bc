"""Which container runtimes are said to read no CDI specs, from real configuration files."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from dra_driver.cdi.runtime import RuntimeWatch
from dra_driver.cdi.support import has_switch, objection, switch
from dra_driver.model.claim import ClaimRef
from dra_driver.model.errors import RetryLater

OLD = "containerd://1.7.29"
OFF, ON = "enable_cdi = false", "enable_cdi = true"
SECTION = '[plugins."io.containerd.grpc.v1.cri"]\n'


class Said:
    """Implements `ports.Events`."""

    def __init__(self) -> None:
        self.node: list[tuple[str, str]] = []
        self.any = threading.Event()

    def warn(self, ref: ClaimRef, reason: str, message: str) -> None:
        raise AssertionError((ref, reason, message))

    def warn_node(self, reason: str, message: str) -> None:
        self.node.append((reason, message))
        self.any.set()


@pytest.mark.parametrize(
    ("runtime", "switches", "words"),
    [
        ("containerd://2.4.2", {}, ""),
        ("containerd://2.4.2", {"/a": False}, ""),  # it has no switch any more
        ("containerd://2.0.5", {}, ""),
        ("containerd://2.3.7", {"/a": False}, "enable_cdi is false in /a: set it to true and restart containerd"),
        ("containerd://v1.7.27-k3s1", {"/a": True}, ""),
        (OLD, {"/a": True, "/b": False}, ""),  # one of the two is another containerd's
        (OLD, {"/b": False, "/a": False}, "enable_cdi is false in /a and /b"),
        (OLD, {}, "enable_cdi = true is in none of /x, /y: add it and restart containerd"),
        ("containerd://1.6.30", {"/a": True}, "use 1.7.2 or newer"),
        ("docker://27.0.1", {}, "cri-dockerd hands none of them on"),
        ("cri-o://1.34.0", {}, ""),
        ("containerd://Unknown", {"/a": False}, ""),
        ("", {}, ""),
    ],
)
def test_a_runtime_is_judged_by_its_version_and_its_files(runtime: str, switches: dict[str, bool], words: str) -> None:
    said = objection(runtime, switches, ("/x", "/y"))
    assert bool(said) is bool(words)
    assert words in said
    assert not said or said.startswith(f"{runtime} reads no CDI specs, so pods with claims run without their GPUs: ")


@pytest.mark.parametrize(
    "configuration",
    [{}, {"plugins": []}, {"plugins": {"io.containerd.cri.v1.runtime": 1}}, {"plugins": {"cri": {"enable_cdi": "no"}}}],
)
def test_a_configuration_that_says_nothing_says_nothing(configuration: dict[str, object]) -> None:
    assert switch(configuration) is None


@pytest.mark.parametrize("section", ["cri", '"io.containerd.grpc.v1.cri"', '"io.containerd.cri.v1.runtime"'])
def test_every_version_of_the_configuration_is_read(tmp_path: Path, section: str) -> None:
    _write(tmp_path, f"[plugins.{section}]\n{OFF}\n")
    assert "enable_cdi is false in /etc/containerd/config.toml" in _watch(tmp_path, Said()).look()


def test_it_is_said_in_the_log_once_and_as_an_event_of_the_node_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    said = Said()
    watch = _watch(tmp_path, said)
    _write(tmp_path, "version = 2\n")
    first = watch.look()
    assert "enable_cdi = true is in none of /etc/containerd/config.toml, " in first
    assert watch.look() == first
    assert said.node == [("CDIOff", first)] * 2  # Events live for an hour
    _write(tmp_path, SECTION + ON, "conf.d/10-cdi.toml")
    assert watch.look() == ""
    assert [record.getMessage() for record in caplog.records] == [
        first,
        f"over: {OLD} reads no CDI specs, so pods with claims run without their GPUs",
    ]


def test_what_the_containerd_that_runs_reads_counts_and_nothing_else(tmp_path: Path) -> None:
    _write(tmp_path, SECTION + ON)  # of a containerd that was here before
    _write(tmp_path, "version = 2\n", "here.toml")
    _process(tmp_path, 1, "systemd", "/sbin/init")
    _process(tmp_path, 40, "containerd-shim", "containerd-shim-runc-v2", "-namespace", "k8s.io")
    _process(tmp_path, 41, "containerd", "containerd", "--config", "/var/run/docker/containerd/containerd.toml")
    _process(tmp_path, 42, "containerd", "/usr/bin/containerd", "-c", "/etc/containerd/here.toml")
    (tmp_path / "proc/43").mkdir()  # one that ends while it is looked at
    said = "enable_cdi = true is not in /etc/containerd/here.toml: add it and restart containerd"
    assert said in _watch(tmp_path, Said()).look()
    _write(tmp_path, SECTION + ON, "here.toml")
    assert _watch(tmp_path, Said()).look() == ""


@pytest.mark.parametrize(
    "arguments",
    [("--config=/opt/c.toml",), ("-c=/opt/c.toml",), ("-config", "/opt/c.toml"), ("-l", "debug", "-c", "/opt/c.toml")],
)
def test_a_configuration_at_any_place_is_found(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _process(tmp_path, 7, "containerd", "containerd", *arguments)
    _write(tmp_path, SECTION + ON, "../../opt/c.toml")
    assert _watch(tmp_path, Said()).look() == ""


@pytest.mark.parametrize("arguments", [("--config",), ("--config=",), ("--config", "/"), ("--config", "relative.toml")])
def test_a_containerd_whose_configuration_cannot_be_told_is_taken_to_have_the_usual_one(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    _process(tmp_path, 7, "containerd", "containerd", *arguments)
    _write(tmp_path, SECTION + ON)
    assert _watch(tmp_path, Said()).look() == ""


@pytest.mark.parametrize("pattern", ["/etc/containerd/more/*.toml", "more/cdi.toml", "../containerd/more/c*.toml"])
def test_what_a_configuration_imports_is_part_of_it(tmp_path: Path, pattern: str) -> None:
    _process(tmp_path, 7, "containerd", "containerd")
    _write(tmp_path, f"imports = ['/nowhere/*', '{pattern}']\n")
    _write(tmp_path, f"imports = ['{pattern}']\n{SECTION}{ON}", "more/cdi.toml")  # itself, too
    assert _watch(tmp_path, Said()).look() == ""


def test_a_runtime_without_a_switch_is_not_asked_for_its_files(tmp_path: Path) -> None:
    _write(tmp_path, SECTION + OFF)
    assert RuntimeWatch(lambda: "containerd://2.4.2", str(tmp_path), Said()).look() == ""
    assert not has_switch("cri-o://1.34.0")


def test_files_that_cannot_be_understood_are_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, SECTION + ON)
    _write(tmp_path, "= [", "conf.d/a.toml")
    (tmp_path / "etc/containerd/conf.d/b.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "etc/containerd/conf.d/c.toml").mkdir()
    assert _watch(tmp_path, Said()).look() == ""


def test_it_is_looked_at_beside_everything_else_and_again_and_again(tmp_path: Path) -> None:
    said = Said()
    watch = _watch(tmp_path, said, again_s=0.01)
    watch.start()
    for _ in range(3):
        assert said.any.wait(10)
        said.any.clear()
    watch.stop()


def test_a_version_that_cannot_be_had_keeps_nobody_waiting(tmp_path: Path) -> None:
    asked = threading.Event()

    def fails() -> str:
        asked.set()
        raise RetryLater("reading Node node-a", "no answer", "wait")

    watch = RuntimeWatch(fails, str(tmp_path), Said())
    watch.start()
    assert asked.wait(10)
    watch.stop()


def _watch(root: Path, said: Said, again_s: float = 60) -> RuntimeWatch:
    return RuntimeWatch(lambda: OLD, str(root), said, again_s)


def _write(root: Path, text: str, name: str = "config.toml") -> None:
    file = root / "etc/containerd" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _process(root: Path, pid: int, name: str, *argv: str) -> None:
    directory = root / f"proc/{pid}"
    directory.mkdir(parents=True)
    (directory / "comm").write_text(f"{name}\n")
    (directory / "cmdline").write_text("\0".join((*argv, "")))
