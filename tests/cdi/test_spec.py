"""Rendering: what a strict reader accepts, in the least version, the same text each time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cdi import names
from dra_driver.cdi.spec import EMPTY_DEVICE_VARIABLE, InvalidSpecError, part, render
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount

KIND = "k8s.gpu.nvidia.com/claim"
GOLDEN = Path(__file__).parent / "golden"

COMMON = ContainerEdits(
    env=("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu"),
    device_nodes=(DeviceNode("/dev/nvidiactl"), DeviceNode("/dev/nvidia-uvm")),
    mounts=(
        Mount("/driver/usr/lib/libcuda.so.580.126.20", "/usr/lib/libcuda.so.580.126.20"),
        Mount("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket", ("nosuid", "nodev", "rbind")),
        Mount("/driver/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi", ()),
    ),
    hooks=(
        Hook("createContainer", "/opt/hook", ("hook", "create-symlinks", "--link", "a::b"), ("DEBUG=false",)),
        Hook("createContainer", "/opt/hook", ("hook", "update-ldcache")),
    ),
)
GPU = ContainerEdits(device_nodes=(DeviceNode("/dev/nvidia0", file_mode=0o666, permissions="rwm"),))
MIG = ContainerEdits(
    env=("CUDA_MPS_PIPE_DIRECTORY=/mps",),
    device_nodes=(DeviceNode("/dev/nvidia-caps/nvidia-cap66", None, 237, 66, 0o444), DeviceNode("/dev/nvidia0")),
)


def version(devices: dict[str, ContainerEdits], common: ContainerEdits, kind: str) -> str:
    return str(json.loads(render(kind, list(devices.items()), part(common)))["cdiVersion"])


def test_golden() -> None:
    devices = [("9d5f-mig", MIG), ("9d5f-gpu", GPU), ("9d5f-empty", ContainerEdits())]
    assert render(KIND, devices, part(COMMON)) == (GOLDEN / "claim.json").read_text()


def test_order_of_input_sets_does_not_show_under_any_hash_seed() -> None:
    script = """
from dra_driver.cdi.spec import part, render
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
paths = {f"/dev/nvidia{n}" for n in range(8)}
edits = ContainerEdits(env=tuple({f"V{p[-1]}={p}" for p in paths}), device_nodes=tuple(DeviceNode(p) for p in paths),
                       mounts=tuple(Mount(p, p) for p in paths))
print(render("v/c", [(f"d-{p[-1]}", edits) for p in paths], part(edits)))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_of_two_entries_for_one_place_the_later_stays_the_later() -> None:
    edits = ContainerEdits(env=("B=2", "A=1", "B=1"), mounts=(Mount("/y", "/a"), Mount("/x", "/a")))
    said = json.loads(render("v/c", [("d", GPU)], part(edits)))["containerEdits"]
    assert said["env"] == ["A=1", "B=2", "B=1"]
    assert [mount["hostPath"] for mount in said["mounts"]] == ["/y", "/x"]


def test_hooks_keep_their_order() -> None:
    hooks = tuple(Hook("createContainer", f"/{letter}") for letter in "zab")
    said = json.loads(render("v/c", [("d", GPU)], part(ContainerEdits(hooks=hooks))))
    assert [hook["path"] for hook in said["containerEdits"]["hooks"]] == ["/z", "/a", "/b"]


@pytest.mark.parametrize(
    ("devices", "common", "kind", "expected"),
    [
        ({"a": GPU}, ContainerEdits(), KIND, "0.3.0"),
        ({"a": GPU}, COMMON, KIND, "0.3.0"),
        ({"9a": GPU}, ContainerEdits(), KIND, "0.5.0"),
        ({"a": GPU, "9a": GPU}, ContainerEdits(), KIND, "0.5.0"),
        ({"a": ContainerEdits(device_nodes=(DeviceNode("/dev/a", "/host/dev/a"),))}, ContainerEdits(), KIND, "0.5.0"),
        ({"a": ContainerEdits(device_nodes=(DeviceNode("/dev/a", "/dev/a"),))}, ContainerEdits(), KIND, "0.3.0"),
        ({"a": GPU}, ContainerEdits(device_nodes=(DeviceNode("/dev/a", "/host/dev/a"),)), KIND, "0.5.0"),
        ({"9a": GPU}, ContainerEdits(), "v/claim.v2", "0.6.0"),
    ],
)
def test_the_least_version_that_says_it(
    devices: dict[str, ContainerEdits], common: ContainerEdits, kind: str, expected: str
) -> None:
    assert version(devices, common, kind) == expected


def test_a_device_without_edits_gets_a_harmless_one_and_empty_common_edits_are_left_out() -> None:
    said = json.loads(render(KIND, [("a", ContainerEdits())], part(ContainerEdits())))
    assert said["devices"] == [{"name": "a", "containerEdits": {"env": [f"{EMPTY_DEVICE_VARIABLE}=a"]}}]
    assert "containerEdits" not in said


def test_a_device_named_twice_is_written_once_unless_it_differs() -> None:
    said = json.loads(render(KIND, [("a", GPU), ("a", GPU)], part(ContainerEdits())))
    assert [device["name"] for device in said["devices"]] == ["a"]
    with pytest.raises(InvalidSpecError, match="device a is named twice with different edits"):
        render(KIND, [("a", GPU), ("a", MIG)], part(ContainerEdits()))


def test_a_spec_without_devices_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="no device"):
        render(KIND, [], part(COMMON))


@pytest.mark.parametrize(
    "kind", ["", "/", "v", "v/", "/c", "1v/c", "v/1c", "v-/c", "v/c-", "v/c/d", "v c/d", "ü/c", "v\n/c"]
)
def test_what_is_no_kind(kind: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not a CDI"):
        render(kind, [("a", GPU)], part(ContainerEdits()))


@pytest.mark.parametrize("name", ["", "-a", "a-", "a/b", "a b", "a=b", 'a"', "ä", "a\n"])
def test_what_is_no_device_name(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not a CDI device name"):
        render(KIND, [(name, GPU)], part(ContainerEdits()))


@pytest.mark.parametrize("name", ["a", "0", "9d5f-gpu-0000-1b-00-0", "a.b_c:d"])
def test_what_is_a_device_name(name: str) -> None:
    assert names.name_problem(name) is None


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (ContainerEdits(env=("A",)), "env 'A' is not NAME=value"),
        (ContainerEdits(env=("=A",)), "env '=A' is not NAME=value"),
        (ContainerEdits(env=("A=\0",)), "not text"),
        (ContainerEdits(mounts=(Mount("/\udcff", "/a"),)), "not text"),
        (ContainerEdits(device_nodes=(DeviceNode("dev/a"),)), "device node path 'dev/a' is not absolute"),
        (
            ContainerEdits(device_nodes=(DeviceNode("/dev/a", "dev/a"),)),
            "device node host path 'dev/a' is not absolute",
        ),
        (ContainerEdits(device_nodes=(DeviceNode("/dev/a", major=1),)), "only one of major and minor"),
        (ContainerEdits(device_nodes=(DeviceNode("/dev/a", permissions="rx"),)), "permissions 'rx'"),
        (ContainerEdits(mounts=(Mount("", "/a"),)), "mount host path '' is not absolute"),
        (ContainerEdits(mounts=(Mount("/a", "a"),)), "mount container path 'a' is not absolute"),
        (ContainerEdits(hooks=(Hook("createContainers", "/h"),)), "hook 'createContainers' is none of"),
        (ContainerEdits(hooks=(Hook("prestart", "h"),)), "hook path 'h' is not absolute"),
        (ContainerEdits(hooks=(Hook("prestart", "/h", env=("A",)),)), "env 'A' of hook /h"),
    ],
)
def test_what_readers_refuse_is_refused_here(edits: ContainerEdits, said: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        part(edits)
    assert said in str(caught.value)


def test_every_mistake_is_listed() -> None:
    with pytest.raises(InvalidSpecError, match=r"'A' .*; .*'b' is not absolute"):
        part(ContainerEdits(env=("A",), device_nodes=(DeviceNode("b"),)))


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
path = text.map(lambda tail: f"/{tail}")
variable = st.builds("{}={}".format, st.text("AB", min_size=1, max_size=2), text)


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=4).map(tuple)


any_edits = st.builds(
    ContainerEdits,
    env=tuples(variable),
    device_nodes=tuples(st.builds(DeviceNode, path, st.none() | path)),
    mounts=tuples(st.builds(Mount, path, path, tuples(text))),
    hooks=tuples(st.builds(Hook, st.just("createContainer"), path, tuples(text), tuples(variable))),
)


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,3}", fullmatch=True), any_edits, min_size=1), any_edits)
def test_everything_said_is_valid_json_that_holds_it_all(
    devices: dict[str, ContainerEdits], common: ContainerEdits
) -> None:
    items = list(devices.items())
    rendered = render(KIND, items, part(common))
    random.shuffle(items)
    assert render(KIND, items, part(common)) == rendered
    said = json.loads(rendered)
    assert [device["name"] for device in said["devices"]] == sorted(devices)
    for device in said["devices"]:
        assert device["containerEdits"], "readers reject a device with empty edits"
        assert all(device["containerEdits"].values()), "and empty lists say nothing"
    assert bool(said.get("containerEdits")) == bool(common)
    mounts = said.get("containerEdits", {}).get("mounts", [])
    assert {(mount["hostPath"], mount["containerPath"]) for mount in mounts} == {
        (mount.host_path, mount.container_path) for mount in common.mounts
    }
