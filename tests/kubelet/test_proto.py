from __future__ import annotations

from pathlib import Path

import pytest

from api.proto import generate
from api.proto.pb import (
    deviceplugin_v1beta1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1_pb2,
    health_v1alpha1_pb2,
    pluginregistration_v1_pb2,
    podresources_v1_pb2,
)


def test_generating_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    made = {path.name: path.read_bytes() for path in generate.generate(tmp_path)}
    committed = {path.name: path.read_bytes() for path in (generate.HERE / "pb").glob("*_pb2*.py*") if path.is_file()}
    assert made == committed


def methods(module: object) -> list[str]:
    return sorted(
        f"/{service.full_name}/{method.name}"
        for service in module.DESCRIPTOR.services_by_name.values()  # type: ignore[attr-defined]
        for method in service.methods
    )


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (
            dra_v1_pb2,
            [
                "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
                "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            ],
        ),
        (
            dra_v1beta1_pb2,
            [
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
            ],
        ),
        (health_v1_pb2, ["/v1.DRAResourceHealth/NodeWatchResources"]),
        (health_v1alpha1_pb2, ["/v1alpha1.DRAResourceHealth/NodeWatchResources"]),
        (
            pluginregistration_v1_pb2,
            ["/pluginregistration.Registration/GetInfo", "/pluginregistration.Registration/NotifyRegistrationStatus"],
        ),
        (podresources_v1_pb2, ["/v1.PodResourcesLister/GetAllocatableResources", "/v1.PodResourcesLister/List"]),
        (
            deviceplugin_v1beta1_pb2,
            [
                "/v1beta1.DevicePlugin/Allocate",
                "/v1beta1.DevicePlugin/GetDevicePluginOptions",
                "/v1beta1.DevicePlugin/ListAndWatch",
                "/v1beta1.Registration/Register",
            ],
        ),
    ],
)
def test_methods_have_the_names_of_the_kubelet(module: object, expected: list[str]) -> None:
    assert methods(module) == expected


def fields(message: object) -> dict[str, int]:
    return {field.name: field.number for field in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]


def test_fields_have_the_numbers_of_the_kubelet() -> None:
    device = {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4}
    assert fields(dra_v1beta1_pb2.Device) == device
    assert fields(dra_v1_pb2.Device) == {**device, "share_id": 5}
    for wire in (dra_v1_pb2, dra_v1beta1_pb2):
        assert fields(wire.Claim) == {"namespace": 1, "uid": 2, "name": 3}
        assert fields(wire.NodePrepareResourceResponse) == {"devices": 1, "error": 2}
        assert fields(wire.NodeUnprepareResourceResponse) == {"error": 1}
        for name in ("NodePrepareResources", "NodeUnprepareResources"):
            assert fields(getattr(wire, f"{name}Request")) == {"claims": 1}
            assert fields(getattr(wire, f"{name}Response")) == {"claims": 1}
    for wire in (health_v1_pb2, health_v1alpha1_pb2):
        assert fields(wire.DeviceHealth) == {
            "device": 1,
            "health": 2,
            "last_updated_time": 3,
            "health_check_timeout_seconds": 4,
            "message": 5,
        }
        assert dict(wire.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}
    assert fields(pluginregistration_v1_pb2.PluginInfo) == {
        "type": 1,
        "name": 2,
        "endpoint": 3,
        "supported_versions": 4,
    }
    assert fields(pluginregistration_v1_pb2.RegistrationStatus) == {"plugin_registered": 1, "error": 2}
    told = podresources_v1_pb2
    assert fields(told.PodResources) == {"name": 1, "namespace": 2, "containers": 3}
    assert fields(told.ContainerResources) == {"name": 1, "devices": 2, "dynamic_resources": 5}
    assert fields(told.ContainerDevices) == {"resource_name": 1, "device_ids": 2}
    assert fields(told.DynamicResource) == {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4}
    claim_resource = {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4, "share_id": 5}
    assert fields(told.ClaimResource) == claim_resource
    for answer in (told.ListPodResourcesResponse, told.AllocatableResourcesResponse):
        assert list(fields(answer).values()) == [1]


def test_only_the_share_id_tells_absent_from_empty() -> None:
    assert dra_v1_pb2.Device.DESCRIPTOR.fields_by_name["share_id"].has_presence
    assert not dra_v1_pb2.Device.DESCRIPTOR.fields_by_name["pool_name"].has_presence


def test_no_generated_file_name_can_clash_with_another_library() -> None:
    assert {Path(module.DESCRIPTOR.name).parent for module in (dra_v1_pb2, health_v1_pb2)} == {Path("api/proto/pb")}
