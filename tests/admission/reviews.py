"""AdmissionReviews as API servers send them, and wrong configurations with what is said about each."""

from __future__ import annotations

import json
from typing import Any

DRIVER = "gpu.nvidia.com"
API_VERSION = "resource.nvidia.com/v1beta1"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"

PATHS = {
    "ResourceClaim": "spec.devices.config",
    "ResourceClaimTemplate": "spec.spec.devices.config",
    "DeviceClass": "spec.config",
}


def gpu(kind: str = "GpuConfig", **sharing: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, **({"sharing": sharing} if sharing else {})}


GOOD = gpu()
# Right, and refused when it is prepared.
NOT_OFFERED = {
    "TimeSlicing": gpu(strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"}),
    "MPS": gpu("MigDeviceConfig", strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 50}),
}
BAD = gpu(strategy="TimeSlice")
BAD_SENTENCE = "sharing.strategy: 'TimeSlice' is not one of 'TimeSlicing' or 'MPS'"

# Name -> (parameters, the sentences, each with its path below the parameters).
WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown strategy": (BAD, (BAD_SENTENCE,)),
    "empty": (
        {},
        (
            "apiVersion: is required; use resource.nvidia.com/v1beta1",
            "kind: is required; use GpuConfig or MigDeviceConfig",
        ),
    ),
    "another version": (
        {**GOOD, "apiVersion": "resource.nvidia.com/v2"},
        ("apiVersion: 'resource.nvidia.com/v2' is not known to this driver; use resource.nvidia.com/v1beta1",),
    ),
    "another kind": (
        {**GOOD, "kind": "ComputeDomainChannelConfig"},
        ("kind: 'ComputeDomainChannelConfig' is not known to this driver; use GpuConfig or MigDeviceConfig",),
    ),
    "typing mistakes": (
        {**gpu(strategy="TimeSlicing", timeslicingConfig={}), "sharin": 1},
        (
            "sharin: unknown field; check its spelling and where it stands",
            "sharing.timeslicingConfig: unknown field; check its spelling and where it stands",
        ),
    ),
    "settings of the other strategy": (
        gpu(strategy="TimeSlicing", mpsConfig={}),
        ("sharing: mpsConfig is given, but strategy is TimeSlicing: use strategy MPS or drop mpsConfig",),
    ),
    "no strategy": (gpu(timeSlicingConfig={}), ("sharing.strategy: is required",)),
    "text for a number": (
        gpu(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": "50"}),
        ("sharing.mpsConfig.defaultActiveThreadPercentage: should be a valid integer, not '50'",),
    ),
    "number for a bool": (
        gpu(strategy="MPS", mpsConfig={"multiUser": 1}),
        ("sharing.mpsConfig.multiUser: should be a valid boolean, not 1",),
    ),
    "too many percent": (
        gpu(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
        ("sharing.mpsConfig.defaultActiveThreadPercentage: should be less than or equal to 100, not 101",),
    ),
    "no quantity": (
        gpu("MigDeviceConfig", strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "8 GB"}),
        ("sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: '8 GB' is not a quantity like 512Mi, 8Gi or 1000000",),
    ),
    "time slices on MIG": (
        gpu("MigDeviceConfig", strategy="TimeSlicing", timeSlicingConfig={}),
        ("sharing.timeSlicingConfig: unknown field; check its spelling and where it stands",),
    ),
}


def entry(parameters: object, driver: str = DRIVER) -> dict[str, Any]:
    return {"requests": [], "opaque": {"driver": driver, "parameters": parameters}}


def manifest(
    *configs: dict[str, Any], kind: str = "ResourceClaim", version: str = "v1", name: str = "mine"
) -> dict[str, Any]:
    wish: dict[str, Any] = {"deviceClassName": DRIVER}
    # Requests are flat in v1beta1.
    request = {"name": "gpu", **wish} if version == "v1beta1" else {"name": "gpu", "exactly": wish}
    devices = {"requests": [request], "config": list(configs)}
    specs = {
        "ResourceClaim": {"devices": devices},
        "ResourceClaimTemplate": {"spec": {"devices": devices}},
        "DeviceClass": {"config": [{"opaque": config["opaque"]} for config in configs]},
    }
    metadata = {"name": name, **({} if kind == "DeviceClass" else {"namespace": "default"})}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": specs[kind]}


def review(new: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    group, _, version = new["apiVersion"].rpartition("/")
    request = {
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": new["kind"]},
        "name": new["metadata"].get("name", ""),
        "namespace": new["metadata"].get("namespace", ""),
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "jane"},
        "object": new,
        "oldObject": old,
        "dryRun": False,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def body(content: object) -> bytes:
    return json.dumps(content).encode()
