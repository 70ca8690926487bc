"""The bytes of a record: nothing is lost, nothing damaged is believed, nothing newer is misread."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.device import PreparedDevice
from dra_driver.model.record import ClaimRecord, Effect, Phase
from dra_driver.state.schema import DamagedError, NewerError, decode, encode, frame

FIXTURES = Path(__file__).parent / "fixtures"

FULL = ClaimRecord(
    ref=ClaimRef("9d5fb3bd-0a2b-4a5e-8d6e-0f3f8a7c1b2d", "team", "train"),
    phase=Phase.READY,
    boot_id="4f0a5a1e",
    results=(AllocationResult("req/big", "node-a", "gpu-0000-1b-00-0", True, "9e9b7f0e"),),
    effects=(Effect("kind:mig", "0000:1b:00.0", {"instance": "", "mode": "on"}),),
    devices=(
        PreparedDevice(
            request="req",
            pool="node-a",
            device="gpu-0000-1b-00-0",
            kind="gpu",
            uuid="GPU-1",
            cdi_ids=("k8s.gpu.nvidia.com/claim=9d5f-gpu",),
            share_id="9e9b7f0e",
            admin_access=True,
            sharing_edits=ContainerEdits(
                env=("A=ü",),
                device_nodes=(DeviceNode("/dev/a", "/host/dev/a", 195, 0, 0o666, "rw"),),
                mounts=(Mount("/a", "/b", ()), Mount("/c", "/d")),
                hooks=(Hook("createContainer", "/bin/h", ("h", "x"), ("E=1",)),),
            ),
        ),
    ),
)

short = st.text(max_size=8)
maybe = st.none() | short
number = st.none() | st.integers(-(2**63), 2**63 - 1)


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=3).map(tuple)


edits = st.builds(
    ContainerEdits,
    env=tuples(short),
    device_nodes=tuples(st.builds(DeviceNode, short, maybe, number, number, number, maybe)),
    mounts=tuples(st.builds(Mount, short, short, tuples(short))),
    hooks=tuples(st.builds(Hook, short, short, tuples(short), tuples(short))),
)
records = st.builds(
    ClaimRecord,
    ref=st.builds(ClaimRef, short, short, short),
    phase=st.sampled_from(Phase),
    boot_id=short,
    results=tuples(st.builds(AllocationResult, short, short, short, st.booleans(), maybe)),
    effects=tuples(st.builds(Effect, short, short, st.dictionaries(short, short, max_size=3))),
    devices=tuples(
        st.builds(PreparedDevice, short, short, short, short, short, tuples(short), maybe, st.booleans(), edits)
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | short,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["claim", "uid", "phase", "results", "effects", "devices", "prior", "sharingEdits", "cdiIDs"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


def test_full_record_names_every_field_that_the_model_has() -> None:
    """A field added to the model without a place in the schema fails here, or in the round trip."""
    unset = []

    def walk(value: Any, path: str) -> None:
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                inner = getattr(value, field.name)
                if inner == field.default or (inner in ((), None) and field.name != "options"):
                    unset.append(f"{path}.{field.name}")
                walk(inner, f"{path}.{field.name}")
        elif isinstance(value, tuple):
            walk(value[0], path) if value else None

    walk(FULL, "record")
    assert unset == []
    assert decode(encode(FULL)) == FULL


@given(records)
def test_round_trip(record: ClaimRecord) -> None:
    assert decode(encode(record)) == record
    assert encode(decode(encode(record))) == encode(record)


@given(records, st.data())
def test_any_damage_is_seen(record: ClaimRecord, data: st.DataObject) -> None:
    whole = encode(record)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        what = data.draw(st.sampled_from(["flip", "cut", "zero", "append"]))
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        if what == "flip" and damaged:
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "cut":
            del damaged[at:]
        elif what == "zero":
            damaged[at:] = bytes(len(damaged) - at)
        else:
            damaged += data.draw(st.binary(min_size=1, max_size=5))
    if bytes(damaged) == whole:
        return
    with pytest.raises(DamagedError):
        decode(bytes(damaged))


def test_every_single_bit_counts() -> None:
    whole = encode(FULL)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedError):
            decode(bytes(damaged))


def test_every_truncation_counts() -> None:
    whole = encode(FULL)
    for length in range(len(whole)):
        with pytest.raises(DamagedError):
            decode(whole[:length])


@given(json_values)
def test_content_that_fits_its_checksum_but_not_the_schema_is_damaged(value: Any) -> None:
    with pytest.raises(DamagedError):
        decode(frame(1, 0, json.dumps(value).encode()))


@given(st.binary(max_size=200))
def test_any_bytes_are_damaged(data: bytes) -> None:
    for candidate in (data, frame(1, 0, data)):
        with pytest.raises(DamagedError):
            decode(candidate)


@pytest.mark.parametrize("payload", [b"[" * 100_000, b'{"claim": ' * 50_000, b"9" * 10_000, b"\xff\xfe{}"])
def test_hostile_json_is_damaged(payload: bytes) -> None:
    with pytest.raises(DamagedError):
        decode(frame(1, 0, payload))


def test_a_newer_major_version_is_refused_and_named() -> None:
    with pytest.raises(NewerError, match=r"schema 2\.3, this version reads up to 1\.x"):
        decode(frame(2, 3, b"whatever a later version writes"))


def test_a_newer_major_version_that_is_damaged_is_damaged() -> None:
    with pytest.raises(DamagedError):
        decode(frame(2, 3, b"whatever a later version writes")[:-1])


def test_the_first_record_ever_written_is_still_read() -> None:
    """The least that schema 1.0 may hold; every field since has a default. Never regenerate this file."""
    record = decode((FIXTURES / "least-1.0.json").read_bytes())
    assert record == ClaimRecord(
        ref=ClaimRef("9d5fb3bd-0a2b-4a5e-8d6e-0f3f8a7c1b2d", "team", "train"),
        phase=Phase.STARTED,
        boot_id="4f0a5a1e",
        results=(AllocationResult("gpu", "node-a", "gpu-0000-1b-00-0"),),
        effects=(Effect("kind:gpu", "compute-mode"),),
        devices=(PreparedDevice("gpu", "node-a", "gpu-0000-1b-00-0", "gpu", "GPU-1", ()),),
    )


def test_unknown_fields_of_a_newer_minor_version_are_kept_out() -> None:
    """NVIDIA's checkpoint breaks on them, because its checksum is over a re-encoding (their #1080)."""
    record = decode((FIXTURES / "later-1.7.json").read_bytes())
    assert record == decode((FIXTURES / "least-1.0.json").read_bytes())
    assert b"later" not in encode(record)


def test_what_an_agent_before_this_one_wrote_is_still_read() -> None:
    """A line for each entry of its lists. Never regenerate this file."""
    assert decode((FIXTURES / "full-1.0.json").read_bytes()) == FULL


def test_what_is_written_today_is_pinned() -> None:
    assert encode(FULL) == (FIXTURES / "indented-1.0.json").read_bytes()
