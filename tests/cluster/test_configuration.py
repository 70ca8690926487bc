from __future__ import annotations

import json
import tomllib
from pathlib import Path

from e2e.cluster import control_plane
from e2e.cluster import node_configuration as node
from e2e.cluster.network import Addresses, interface
from e2e.cluster.options import Options
from e2e.cluster.parts import PROGRAMS
from e2e.cluster.pki import Pki

PLACES = {program.name: Path("/cache") / program.module.name / program.name for program in PROGRAMS}
ADDRESSES = Addresses("10.213.9")


def command_line(part: str, options: Options) -> list[str]:
    (one,) = [known for known in control_plane.PARTS if known == part]
    return control_plane.argv(one, options, PLACES, Path("/c"), Pki(Path("/pki")), ADDRESSES)


def test_every_part_has_a_program_a_port_and_a_command_line() -> None:
    for part in control_plane.PARTS:
        assert command_line(part, Options())[0] == str(PLACES[control_plane.PROGRAM[part]])
        assert control_plane.PORT[part]


def test_a_release_is_emulated_by_all_that_can() -> None:
    options = Options(emulate="1.34", feature_gates={"B": False, "A": True})
    for part in ("apiserver", "controller-manager", "scheduler"):
        assert "--emulated-version=kube=1.34" in command_line(part, options)
        assert "--feature-gates=A=true,B=false" in command_line(part, options)
    assert not [flag for flag in command_line("apiserver", Options()) if "emulated" in flag or "gates" in flag]


def test_only_the_versions_asked_for_are_served() -> None:
    options = Options(served=("v1beta1",))
    setting = "resource.k8s.io/v1=false,resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=false"
    assert f"--runtime-config={setting}" in command_line("apiserver", options)
    assert control_plane.parts(options) == ("etcd", "apiserver", "controller-manager")
    assert "exclude" in control_plane.readiness(options)
    assert control_plane.readiness(Options()) == "/readyz"


def test_the_kubelet_starts_on_either_cgroup_version_and_admits_no_stranger() -> None:
    kubelet = json.loads(node.kubelet("10.213.9.11", "/dra-e2e.demo/a", "/pki/ca.crt", {"A": True}))
    assert kubelet["failCgroupV1"] is False
    assert kubelet["cgroupRoot"] == "/dra-e2e.demo/a"
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}
    assert kubelet["featureGates"] == {"A": True}


def test_containerd_finds_its_parts() -> None:
    text = node.containerd(PLACES, restrict_oom_score_adj=True)
    plugins = tomllib.loads(text)["plugins"]
    runtime = plugins["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["bin_dirs"] == ["/cache/cni"]
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/cache/runc/runc"
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == "docker.io/e2e/pause:1"


def test_an_old_containerd_has_cdi_on_only_where_it_is_asked_for() -> None:
    section = "io.containerd.grpc.v1.cri"
    with_cdi, without = (
        tomllib.loads(node.containerd17(PLACES, cdi=cdi, restrict_oom_score_adj=False))["plugins"][section]
        for cdi in (True, False)
    )
    assert with_cdi.pop("enable_cdi") is True
    assert with_cdi == without
    assert without["cni"]["bin_dir"] == "/cache/cni"
    assert without["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/cache/runc/runc"


def test_every_tunable_that_a_kubelet_would_change_is_covered() -> None:
    text = node.mounts("/home/nodes/a")
    assert all(f"/proc/sys/{tunable}" in text for tunable in node.TUNABLES)


def test_addresses_differ() -> None:
    everybody = [ADDRESSES.host, ADDRESSES.control_plane, *(ADDRESSES.node(number) for number in range(100))]
    assert len(set(everybody)) == len(everybody)
    assert ADDRESSES.node(99) == "10.213.9.110"
    assert len({Addresses.pods(number) for number in range(100)}) == 100


def test_interface_names_fit_the_kernel_and_differ() -> None:
    names = ["a", "demo", "a" * 11, "a" * 12, "a" * 20, "a" * 19 + "b"]
    assert all(len(interface(name)) <= 15 for name in names)
    assert len({interface(name) for name in names}) == len(names)
