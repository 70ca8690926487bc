"""What the simulated machines publish and what a claim's CDI spec says, as reviewed text."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

import pytest
import yaml

from dra_driver.kinds.attributes import GPU_ATTRIBUTES
from tests.golden.produce import FILES, HERE, ROOT, UID

# specs-go/config.go of CDI 0.5.0, the version that the spec names: field -> type. Readers decode strictly.
EDITS = {"env": list, "deviceNodes": list, "hooks": list, "mounts": list}
NODE = {"path": str, "hostPath": str, "type": str, "major": int, "minor": int, "fileMode": int, "permissions": str}
HOOK = {"hookName": str, "path": str, "args": list, "env": list, "timeout": int}
MOUNT = {"hostPath": str, "containerPath": str, "options": list, "type": str}


@pytest.mark.parametrize("name", FILES)
def test_golden_file_is_what_the_code_says(name: str) -> None:
    expected, produced = (ROOT / name).read_text(), FILES[name]()
    if produced != expected:
        lines = difflib.unified_diff(expected.splitlines(), produced.splitlines(), name, "code", "", "", 1)
        difference = "\n".join(line[:200] for line in lines)
        pytest.fail(
            f"{name} differs from what the code produces. If the change is wanted, run\n\n"
            f"    python -m tests.golden.rewrite\n\nand commit the file. The difference:\n\n{difference}",
            pytrace=False,
        )


def test_every_attribute_of_the_table_is_shown_for_some_machine() -> None:
    machines = yaml.safe_load((HERE / "devices.yaml").read_text())
    shown = {name for machine in machines.values() for device in machine.values() for name in device}
    assert {row.name for row in GPU_ATTRIBUTES} <= shown, "an attribute that no simulated machine has is never tested"


def test_the_spec_is_what_a_strict_reader_of_cdi_accepts() -> None:
    spec = json.loads((HERE / "claim.cdi.json").read_text(), object_pairs_hook=_without_duplicates)
    _only(spec, {"cdiVersion": str, "kind": str, "devices": list, "containerEdits": dict})
    assert spec["cdiVersion"] == "0.5.0"
    assert re.fullmatch(r"[A-Za-z][\w.-]*[A-Za-z0-9]/[A-Za-z][\w.-]*[A-Za-z0-9]", spec["kind"])
    names = [device["name"] for device in spec["devices"]]
    assert len(names) == len(set(names)) == 2
    for device in spec["devices"]:
        _only(device, {"name": str, "containerEdits": dict})
        assert re.fullmatch(r"[A-Za-z0-9][\w.:-]*[A-Za-z0-9]", device["name"])
        assert device["name"].startswith(f"{UID}-gpu-0000-")
        assert device["containerEdits"], "a device without edits makes readers drop the file"
    for edits in (spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])):
        _accepted(edits)
    each = [{node["path"] for node in device["containerEdits"]["deviceNodes"]} for device in spec["devices"]]
    assert not set.intersection(*each), "two GPUs have no device node in common"


def _accepted(edits: dict[str, Any]) -> None:
    _only(edits, EDITS)
    for variable in edits.get("env", ()):
        assert re.match(r"[^=]+=", variable), variable
    for node in edits.get("deviceNodes", ()):
        _only(node, NODE)
        assert node["path"].startswith("/dev/")
        assert node.get("hostPath", "/").startswith("/")
    for hook in edits.get("hooks", ()):
        _only(hook, HOOK)
        assert hook["hookName"] in (
            "prestart",
            "createRuntime",
            "createContainer",
            "startContainer",
            "poststart",
            "poststop",
        )
        assert hook["path"].startswith("/")
        assert all(isinstance(argument, str) for argument in hook["args"])
    for mount in edits.get("mounts", ()):
        _only(mount, MOUNT)
        assert mount["hostPath"].startswith("/")
        assert mount["containerPath"].startswith("/")
    places = [mount["containerPath"] for mount in edits.get("mounts", ())]
    assert len(places) == len(set(places)), "two mounts on one place"


def _only(found: dict[str, Any], fields: dict[str, type]) -> None:
    for key, value in found.items():
        assert key in fields, f"{key!r} is no field of CDI 0.5.0 there: readers refuse the file"
        assert type(value) is fields[key], f"{key}: {value!r}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(pairs) == len({key for key, _ in pairs}), f"a field twice in {pairs}"
    return dict(pairs)
