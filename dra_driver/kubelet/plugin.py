"""The services `k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin` and `...v1beta1.DRAPlugin`: wire in, node service, wire out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import grpc

from api.proto.pb import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from dra_driver.kubelet.claim_calls import LONGEST_WAIT_S, ClaimCalls, Failed
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import PreparedDevice
from dra_driver.ports import NodeService


class DRAPlugin:
    """One version of the service; `wire` is the generated module of its messages, which are the same but for the share ID.

    Every claim of a request is in the answer, with its devices or its error; the call as a whole does not fail.
    """

    def __init__(self, wire: ModuleType, service: NodeService, calls: ClaimCalls) -> None:
        self._wire: Any = wire
        self._service = service
        self._calls = calls
        self._has_share_ids = "share_id" in self._wire.Device.DESCRIPTOR.fields_by_name

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (wire)
        self._calls.opened(context.add_callback)
        refs = _refs(request.claims)
        response = self._wire.NodePrepareResourcesResponse()
        answers = self._calls.each("prepare", self._service.prepare_each, refs, _budget_s(context))
        for ref, answer in answers.items():
            # Touching the key makes the entry: one without devices must be in the answer, too.
            entry = response.claims[ref.uid]
            if isinstance(answer, Failed):
                entry.error = answer.error
            else:
                entry.devices.extend(self._device(device) for device in answer.value)
        return response

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 (wire)
        self._calls.opened(context.add_callback)
        refs = _refs(request.claims)
        response = self._wire.NodeUnprepareResourcesResponse()
        answers = self._calls.each("unprepare", self._unprepare_each, refs, _budget_s(context))
        for ref, answer in answers.items():
            entry = response.claims[ref.uid]
            if isinstance(answer, Failed):
                entry.error = answer.error
        return response

    def _unprepare_each(self, refs: Sequence[ClaimRef]) -> Sequence[Callable[[], None]]:
        return [partial(self._service.unprepare, ref) for ref in refs]

    def _device(self, device: PreparedDevice) -> Any:
        message = self._wire.Device(
            request_names=[device.request.split("/", 1)[0]],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
        if self._has_share_ids and device.share_id is not None:
            message.share_id = device.share_id
        return message


def add_plugins(server: grpc.Server, service: NodeService, calls: ClaimCalls, threads: ThreadPoolExecutor) -> None:
    """Serves both versions on `server`, their calls in `threads` instead of the server's own."""
    versions: Sequence[tuple[ModuleType, Any]] = (
        (dra_v1_pb2, dra_v1_pb2_grpc.add_DRAPluginServicer_to_server),
        (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server),
    )
    for wire, add_to_server in versions:
        plugin = DRAPlugin(wire, service, calls)
        servicer = SimpleNamespace(
            NodePrepareResources=_InThreads(plugin.NodePrepareResources, threads),
            NodeUnprepareResources=_InThreads(plugin.NodeUnprepareResources, threads),
        )
        add_to_server(servicer, server)


class _InThreads:
    """Keeps claims that take long (or hang) from taking the threads of the registration service, on the same server.

    grpcio looks for the attribute `experimental_thread_pool` on the behaviour of a method. Without it the calls would run in
    the server's own threads, and the test that GetInfo answers while all claims hang would fail.
    """

    def __init__(self, behaviour: Callable[[Any, grpc.ServicerContext], Any], threads: ThreadPoolExecutor) -> None:
        self._behaviour = behaviour
        self.experimental_thread_pool = threads

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._behaviour(request, context)


def _refs(claims: Iterable[Any]) -> Sequence[ClaimRef]:
    """One for each UID."""
    by_uid = {claim.uid: ClaimRef(uid=claim.uid, namespace=claim.namespace, name=claim.name) for claim in claims}
    return tuple(by_uid.values())


def _budget_s(context: grpc.ServicerContext) -> float:
    remaining: float | None = context.time_remaining()
    # With the kubelet's 45 s this is 40 s. Time that the call waited for a thread is gone already.
    return LONGEST_WAIT_S if remaining is None else max(0.0, min(LONGEST_WAIT_S, remaining * 0.9))
