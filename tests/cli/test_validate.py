"""`dra-driver validate`: good, bad and strange files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from .conftest import Command

ROOT = Path(__file__).parents[2]


def claim(parameters: object, kind: str = "ResourceClaim", driver: str = "gpu.nvidia.com") -> dict[str, object]:
    devices = {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]}
    spec = {
        "ResourceClaim": {"devices": devices},
        "ResourceClaimTemplate": {"spec": {"devices": devices}},
        "DeviceClass": devices,
    }[kind]
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "mine"}, "spec": spec}


def config(**sharing: object) -> dict[str, object]:
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        **({"sharing": sharing} if sharing else {}),
    }


GOOD = config()
BAD = config(strategy="TimeSlice", intervall=1)


def test_the_examples_of_this_repository(command: Command) -> None:
    files = sorted(path for place in ("examples", "manifests") for path in (ROOT / "deploy" / place).glob("*.yaml"))
    done = command("validate", *files)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{len(files)} files, ")
    assert done.stderr.endswith("configurations for gpu.nvidia.com: 0 mistakes\n")


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_every_kind_that_holds_configuration(within: Command, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(yaml.safe_dump_all([claim(GOOD, kind), claim(BAD, kind)]))
    done = within("validate", path)
    assert done.returncode == 1
    where = {"ResourceClaim": "spec.devices.", "ResourceClaimTemplate": "spec.spec.devices.", "DeviceClass": "spec."}
    begin = f"{path}: {kind}/mine {where[kind]}config[0].opaque.parameters.sharing."
    assert done.stdout.splitlines() == [
        f"{begin}strategy: 'TimeSlice' is not one of 'TimeSlicing' or 'MPS'",
        f"{begin}intervall: unknown field; check its spelling and where it stands",
    ]
    assert done.stderr == "1 file, 2 objects, 2 configurations for gpu.nvidia.com: 2 mistakes\n"


@pytest.mark.parametrize("strategy", ["TimeSlicing", "MPS"])
def test_what_will_be_refused_when_it_is_prepared_is_a_warning(within: Command, strategy: str) -> None:
    told = (
        "warning: -: ResourceClaim/mine spec.devices.config[0].opaque.parameters: asks for sharing strategy "
        f"{strategy}, which this driver does not offer (it offers: Exclusive); "
        "remove `sharing` from the configuration of the claim or DeviceClass"
    )
    shared = claim(config(strategy=strategy))
    done = within("validate", "-", stdin=yaml.safe_dump(shared))
    assert (done.returncode, done.stdout.splitlines()) == (0, [told])
    assert done.stderr == "1 file, 1 object, 1 configuration for gpu.nvidia.com: 0 mistakes, 1 warning\n"
    done = within("validate", "-", stdin=yaml.safe_dump_all([shared, claim(BAD), shared]))
    assert done.returncode == 1
    assert done.stdout.splitlines()[2:] == [told, told], "after the mistakes"
    assert done.stderr.endswith(": 2 mistakes, 2 warnings\n")


def test_standard_input_and_json_and_lists(command: Command) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [claim(GOOD), claim(BAD)]}
    for text in (json.dumps(listed), yaml.safe_dump(listed)):
        done = command("validate", "-", stdin=text)
        assert done.returncode == 1
        assert done.stdout.startswith("-: ResourceClaim/mine spec.devices.config[0]")
        assert done.stderr == "1 file, 2 objects, 2 configurations for gpu.nvidia.com: 2 mistakes\n"


def test_other_drivers_configuration_is_not_judged(command: Command) -> None:
    text = yaml.safe_dump(claim(BAD, driver="gpu.example.com"))
    assert command("validate", "-", stdin=text).returncode == 0
    assert command("validate", "-", "--driver-name=gpu.example.com", stdin=text).returncode == 1


@pytest.mark.parametrize("parameters", [None, [], "GpuConfig", 1, True, {}])
def test_parameters_that_are_no_configuration(within: Command, parameters: object) -> None:
    done = within("validate", "-", stdin=yaml.safe_dump(claim(parameters)))
    assert done.returncode == 1
    assert "-: ResourceClaim/mine spec.devices.config[0].opaque.parameters" in done.stdout


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x81\x82", "is neither YAML nor JSON"),
        (b"\x00" * 100, "is neither YAML nor JSON"),
        (b"a: [", "is neither YAML nor JSON"),
        (b'{"kind": "ResourceClaim",', "is neither YAML nor JSON"),
        (b"a: *nothing", "is neither YAML nor JSON"),
        (b"!!python/object/apply:os.system [true]", "is neither YAML nor JSON"),
        (b"[" * 20000, "is nested too deeply"),
        (b'{"a":' * 20000, "is nested too deeply"),
        (b"hello", "document 1 is not a Kubernetes object"),
        (b"- kind: ResourceClaim", "document 1 is not a Kubernetes object"),
        (b"kind: A\n---\n42", "document 2 is not a Kubernetes object"),
    ],
)
def test_files_that_are_no_manifests(within: Command, data: bytes, why: str) -> None:
    done = within("validate", "-", stdin=data)
    assert done.returncode == 1
    assert done.stdout.startswith(f"-: {why}")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("data", [b"", b"\n---\n---\n", b"# nothing\n"])
def test_empty_files_are_right(within: Command, data: bytes) -> None:
    done = within("validate", "-", stdin=data)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "1 file, 0 objects, 0 configurations for gpu.nvidia.com: 0 mistakes\n"


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "ResourceClaim"},
        {"kind": "ResourceClaim", "spec": None},
        {"kind": "ResourceClaim", "spec": {"devices": []}},
        {"kind": "ResourceClaim", "spec": {"devices": {"config": {}}}},
        {"kind": "ResourceClaim", "spec": {"devices": {"config": [None, {}, {"opaque": 1}]}}},
        {"kind": ["ResourceClaim"], "metadata": 1},
        {"kind": "List", "items": [None, 1, []]},
    ],
)
def test_objects_of_a_strange_shape_are_left_to_the_api_server(within: Command, document: object) -> None:
    done = within("validate", "-", stdin=json.dumps(document))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_list_that_holds_itself(within: Command) -> None:
    assert within("validate", "-", stdin="kind: List\nitems: &a [{kind: List, items: *a}]").returncode == 0


def test_a_large_dump_of_a_cluster(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "claims.json"
    listed = {"kind": "List", "items": [claim(GOOD)] * 20000 + [claim(BAD)]}
    path.write_text(json.dumps(listed))
    done = command("validate", path)
    assert done.returncode == 1
    assert done.stderr == "1 file, 20001 objects, 20001 configurations for gpu.nvidia.com: 2 mistakes\n"


def test_files_that_cannot_be_read_do_not_hide_the_others(command: Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(claim(BAD)))
    done = command("validate", tmp_path / "nowhere.yaml", tmp_path, bad)
    assert done.returncode == 1
    first, second, *rest = done.stdout.splitlines()
    assert first == f"{tmp_path}/nowhere.yaml: cannot be read: No such file or directory"
    assert second == f"{tmp_path}: cannot be read: Is a directory"
    assert len(rest) == 2


def test_without_files_it_asks_for_them(command: Command) -> None:
    done = command("validate")
    assert (done.returncode, done.stderr) == (
        2,
        "dra-driver validate: name at least one FILE, or - for standard input\n",
    )


def test_the_schema_for_editors(command: Command) -> None:
    done = command("validate", "--schema")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"GpuConfig", "MigDeviceConfig"} <= set(schema["$defs"])
