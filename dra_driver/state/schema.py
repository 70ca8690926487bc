"""ClaimRecord <-> the bytes of a ledger file. Pure.

    dra-driver-ledger 1.0 blake2b-128 <32 hex digits>
    {"claim": ...}

The first line has this form in every version, for ever: so an old agent can tell a newer record from a damaged one. The
digest covers the version and the payload bytes as they were written, never a re-encoding: a record stays valid when the
code that reads it knows more fields, or fewer.

Minor version: fields that an older reader may leave out; it ignores them. Major version: anything else, a new phase
included; an older reader refuses the record and leaves it alone.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import orjson

from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.device import PreparedDevice
from dra_driver.model.record import ClaimRecord, Effect, Phase
from dra_driver.state.edits import decode_edits, encode_edits
from dra_driver.state.fields import Fields

MAJOR, MINOR = 1, 0

_HEADER = re.compile(
    rb"dra-driver-ledger (?P<major>[0-9]{1,4})\.(?P<minor>[0-9]{1,4}) blake2b-128 (?P<digest>[0-9a-f]{32})"
)


class DamagedError(Exception):
    """These bytes are not a record as it was written; the text says why."""


class NewerError(Exception):
    """A whole record, of a major version that this code does not know."""

    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(f"schema {version}, this version reads up to {MAJOR}.x")


def encode(record: ClaimRecord) -> bytes:
    """The bytes of the file. Fields at their default are left out; order follows the record."""
    document: dict[str, Any] = {
        "claim": {"uid": record.ref.uid, "namespace": record.ref.namespace, "name": record.ref.name},
        "phase": record.phase.value,
        "bootID": record.boot_id,
    }
    lists = {
        "results": [_result(result) for result in record.results],
        "effects": [_effect(effect) for effect in record.effects],
        "devices": [_device(device) for device in record.devices],
    }
    document |= {key: items for key, items in lists.items() if items}
    return frame(MAJOR, MINOR, orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def frame(major: int, minor: int, payload: bytes) -> bytes:
    """Puts the first line before the payload."""
    version = b"%d.%d" % (major, minor)
    return b"dra-driver-ledger %s blake2b-128 %s\n%s" % (version, _digest(version, payload), payload)


def decode(data: bytes) -> ClaimRecord:
    """The record in these bytes. NewerError when a newer major version wrote them, DamagedError for all else that is wrong;
    nothing else is raised, whatever the bytes."""
    line, newline, payload = data.partition(b"\n")
    header = _HEADER.fullmatch(line)
    if not newline or header is None:
        raise DamagedError("empty file" if not data else "the first line is not that of a ledger file")
    version = header["major"] + b"." + header["minor"]
    if header["digest"] != _digest(version, payload):
        raise DamagedError("the checksum does not fit: changed or cut off after it was written")
    if int(header["major"]) > MAJOR:
        raise NewerError(version.decode())
    try:
        return _record(Fields.of(orjson.loads(payload), "record"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the checksum fits, the content does not: {error}") from error


def _digest(version: bytes, payload: bytes) -> bytes:
    return blake2b(version + b"\n" + payload, digest_size=16).hexdigest().encode()


def _record(record: Fields) -> ClaimRecord:
    claim = record.object("claim")
    return ClaimRecord(
        ref=ClaimRef(uid=claim.text("uid"), namespace=claim.text("namespace"), name=claim.text("name")),
        phase=Phase(record.text("phase")),
        boot_id=record.text("bootID"),
        results=tuple(
            AllocationResult(
                request=result.text("request"),
                pool=result.text("pool"),
                device=result.text("device"),
                admin_access=result.flag("adminAccess"),
                share_id=result.optional_text("shareID"),
            )
            for result in record.objects("results")
        ),
        effects=tuple(
            Effect(owner=effect.text("owner"), target=effect.text("target"), prior=effect.text_map("prior"))
            for effect in record.objects("effects")
        ),
        devices=tuple(
            PreparedDevice(
                request=device.text("request"),
                pool=device.text("pool"),
                device=device.text("device"),
                kind=device.text("kind"),
                uuid=device.text("uuid"),
                cdi_ids=device.texts("cdiIDs"),
                share_id=device.optional_text("shareID"),
                admin_access=device.flag("adminAccess"),
                sharing_edits=decode_edits(device.optional_object("sharingEdits")),
            )
            for device in record.objects("devices")
        ),
    )


def _result(result: AllocationResult) -> dict[str, Any]:
    said: dict[str, Any] = {"request": result.request, "pool": result.pool, "device": result.device}
    return _with_sharing(said, result.admin_access, result.share_id)


def _effect(effect: Effect) -> dict[str, Any]:
    said: dict[str, Any] = {"owner": effect.owner, "target": effect.target}
    return said | {"prior": dict(effect.prior)} if effect.prior else said


def _device(device: PreparedDevice) -> dict[str, Any]:
    said: dict[str, Any] = {
        "request": device.request,
        "pool": device.pool,
        "device": device.device,
        "kind": device.kind,
        "uuid": device.uuid,
        "cdiIDs": list(device.cdi_ids),
    }
    if device.sharing_edits:
        said["sharingEdits"] = encode_edits(device.sharing_edits)
    return _with_sharing(said, device.admin_access, device.share_id)


def _with_sharing(said: dict[str, Any], admin_access: bool, share_id: str | None) -> dict[str, Any]:
    if admin_access:
        said["adminAccess"] = True
    if share_id is not None:
        said["shareID"] = share_id
    return said
