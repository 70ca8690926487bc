"""The admission webhook before a real API server: what users are told, what it leaves alone, and what happens without it."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.kube.client import KubeApi
from dra_driver.kube.errors import Forbidden
from e2e.by_process import ByProcess
from e2e.cluster import ClusterError, Options, Unsupported, processes
from e2e.installation import Installation, View, until
from e2e.objects import claim, config, pod, template
from e2e.tests.space import Space
from e2e.webhook import CONFIGURATION, NAMESPACE, PORT, SECRET, Webhook

pytestmark = pytest.mark.once

RIGHT: dict[str, Any] = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
WRONG = {**RIGHT, "sharing": {"strategy": "TimeSlice", "intervall": "Long"}}
SENTENCES = (
    "sharing.strategy: 'TimeSlice' is not one of 'TimeSlicing' or 'MPS'",
    "sharing.intervall: unknown field; check its spelling and where it stands",
)


@pytest.fixture(scope="module")
def webhook(installation: Installation) -> Iterator[Webhook]:
    if not isinstance(installation, ByProcess):
        raise Unsupported("bringing a webhook: the chart brings its own, which has tests of its own")
    made = Webhook(installation, installation.cluster.directory)
    made.install()
    try:
        yield made
    finally:
        made.remove()


def device_class(name: str, parameters: dict[str, Any], driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]},
    }


def of_another_driver(parameters: dict[str, Any]) -> dict[str, Any]:
    entry = config(parameters)
    entry["opaque"]["driver"] = "gpu.example.com"
    return entry


def refused(space: Space, item: dict[str, Any]) -> str:
    with pytest.raises(ClusterError) as caught:
        space.apply(item)
    return str(caught.value)


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (claim("wrong", configs=[config(RIGHT), config(WRONG)]), "spec.devices.config[1].opaque.parameters"),
        (template("wrong", configs=[config(WRONG)]), "spec.spec.devices.config[0].opaque.parameters"),
        (device_class("wrong", WRONG), "spec.config[0].opaque.parameters"),
    ],
    ids=["claim", "template", "class"],
)
def test_wrong_configuration_is_refused_with_every_mistake_and_its_path(
    webhook: Webhook, space: Space, item: dict[str, Any], path: str
) -> None:
    said = refused(space, item)
    assert f'The {item["kind"]} "wrong" is invalid' in said
    for sentence in SENTENCES:
        assert f"* {path}.{sentence}" in said


def test_what_prepare_will_refuse_is_let_in_with_a_warning(webhook: Webhook, space: Space) -> None:
    shared = json.dumps(claim("shared", configs=[config({**RIGHT, "sharing": {"strategy": "MPS"}})]))
    with pytest.raises(ClusterError) as said:
        space.on.kubectl("apply", "--warnings-as-errors", "-n", space.name, "-f", "-", stdin=shared)
    told = "Warning: spec.devices.config[0].opaque.parameters: asks for sharing strategy MPS, which this driver does not offer"
    assert told in str(said.value)
    assert space.on.kubectl("get", "resourceclaim", "shared", "-n", space.name, "-o", "name").strip()


def test_who_is_no_kubectl_is_told_who_refused_it_and_what_to_do(webhook: Webhook, space: Space) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims"
    with pytest.raises(
        ClusterError, match=r": 422 .*admission webhook .*opaque-configuration\.gpu\.nvidia\.com"
    ) as said:
        space.on.cluster.request("POST", path, claim("wrong", configs=[config(WRONG)]))
    assert f"checking the configuration of ResourceClaim {space.name}/wrong for gpu.nvidia.com" in str(said.value)


def test_right_configuration_and_other_drivers_are_let_through_and_used(webhook: Webhook, space: Space) -> None:
    entries = [config(RIGHT, "gpu"), of_another_driver(WRONG)]
    space.apply(claim("mine", configs=entries), template("more", configs=entries))
    space.apply(pod("user", claims=["mine"], templates=["more"], node="node-b"))
    space.running("user")
    assert len(space.gpus("user")) == 2


def test_a_class_is_changed_where_its_configuration_is_not_touched(webhook: Webhook, space: Space) -> None:
    """What was let in before the webhook was there does not lock anybody out."""
    name = f"{space.name}-old"
    webhook.on.cluster.request("DELETE", CONFIGURATION)
    try:
        until("the class to be let in", lambda: let_in(space, device_class(name, WRONG)), 30)
        webhook.on.apply(*webhook.objects)
        until("the authority in the configuration", webhook.is_known, 30)
        until("the webhook to be asked", lambda: not let_in(space, device_class(f"{name}-new", WRONG)), 30)
        space.on.kubectl("label", "deviceclass", name, "team=a")
        assert "is invalid" in refused(space, device_class(name, {**WRONG, "kind": "GpuConfg"}))
    finally:
        space.on.kubectl("delete", "deviceclass", name, f"{name}-new", "--ignore-not-found")


def let_in(space: Space, item: dict[str, Any]) -> bool:
    try:
        space.on.apply(item)
    except ClusterError:
        return False
    return True


def test_while_it_is_down_only_new_configuration_for_this_driver_waits(webhook: Webhook, space: Space) -> None:
    space.apply(claim("before", configs=[config(RIGHT)]))
    assert webhook.stop() == 0
    try:
        said = refused(space, claim("ours", configs=[config(RIGHT)]))
        assert 'failed calling webhook "opaque-configuration.gpu.nvidia.com"' in said
        assert "failed calling webhook" in refused(space, template("ours", configs=[config(RIGHT)]))
        space.apply(claim("none"), claim("others", configs=[of_another_driver(WRONG)]), template("plain"))
        # A claim that was let in before is scheduled, used and deleted: its finalizer comes and goes by updates.
        space.apply(pod("user", claims=["before"], templates=["plain"], node="node-b"))
        space.running("user")
        space.delete("pod", "user")
        space.delete("resourceclaim", "before")
    finally:
        webhook.start()
    space.apply(claim("ours", configs=[config(RIGHT)]))


def test_its_certificate_is_renewed_without_a_restart_and_nobody_notices(webhook: Webhook, space: Space) -> None:
    webhook.stop()
    secret = next(item for item in webhook.objects if item["kind"] == "Secret")
    webhook.on.cluster.request("PUT", SECRET, secret)  # what is in it would live for weeks
    webhook.start(PORT, "--tls-life-s=5")
    try:
        authority, first = webhook.secret()["ca.crt"], expires(webhook)
        until("the API server to know the authority", lambda: "is invalid" in refused(space, wrong_claim()), 30)
        while time.time() < first + 1:
            assert "is invalid" in refused(space, wrong_claim()), "it was asked, and it answered"
        assert expires(webhook) > first
        assert webhook.secret()["ca.crt"] == authority
    finally:
        webhook.stop()
        webhook.start()


def wrong_claim() -> dict[str, Any]:
    return claim("wrong", configs=[config(WRONG)])


def expires(webhook: Webhook) -> float:
    shown = until("a certificate", webhook.certificate, 30)
    return ssl.cert_time_to_seconds(shown["notAfter"])


def test_two_replicas_show_one_certificate(webhook: Webhook, space: Space) -> None:
    webhook.start(PORT + 1)
    assert webhook.certificate(PORT + 1) == webhook.certificate(PORT)
    webhook.stop(PORT + 1)


def test_a_secret_that_somebody_empties_is_filled_again_as_it_was(webhook: Webhook, space: Space) -> None:
    before = webhook.secret()
    webhook.on.cluster.request("PUT", SECRET, next(item for item in webhook.objects if item["kind"] == "Secret"))
    until("the Secret to be filled", lambda: webhook.secret() == before, 30)
    assert "is invalid" in refused(space, wrong_claim())


def test_a_bundle_that_somebody_overwrites_comes_back(webhook: Webhook, space: Space) -> None:
    space.on.apply(*webhook.objects)  # without caBundle: it stays as it is
    assert webhook.is_known()
    configuration = space.on.cluster.request("GET", CONFIGURATION)
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(
        space.on.cluster.ca.read_bytes()
    ).decode()
    space.on.cluster.request("PUT", CONFIGURATION, configuration)
    until("the authority in the configuration", webhook.is_known, 30)
    until("the API server to know it", lambda: "is invalid" in refused(space, wrong_claim()), 30)


def test_its_own_token_is_good_for_one_secret_and_one_configuration(webhook: Webhook, space: Space) -> None:
    api = KubeApi(str(webhook.kubeconfig))
    assert api.request("GET", SECRET)["data"]
    assert api.request("GET", CONFIGURATION)["webhooks"]
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "made"}}
    secrets, configurations = SECRET.rpartition("/")[0], CONFIGURATION.rpartition("/")[0]
    for method, path in (
        ("GET", secrets),
        ("POST", secrets),
        ("GET", f"{secrets}/other"),
        ("PUT", f"{secrets}/other"),
        ("DELETE", SECRET),
        ("GET", configurations),
        ("POST", configurations),
        ("PUT", f"{configurations}/other"),
        ("DELETE", CONFIGURATION),
        ("GET", "/api/v1/secrets"),
        ("GET", f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims"),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices"),
        ("GET", f"/api/v1/namespaces/{space.name}/pods"),
    ):
        with pytest.raises(Forbidden):
            api.request(method, path, body=None if method == "GET" else other)
    api.close()


@pytest.fixture(scope="module", params=["v1beta1", "v1beta2"])
def older(request: pytest.FixtureRequest) -> Iterator[tuple[Webhook, str]]:
    """A control plane that serves only an older version."""
    cluster = processes(Options(name=f"hook-{request.param}", nodes=(), served=(request.param,)))
    cluster.up()
    made = Webhook(View(cluster), cluster.directory)
    try:
        made.on.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        made.install()
        yield made, request.param
    finally:
        made.remove()
        cluster.down()


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_where_only_an_older_version_is_served(older: tuple[Webhook, str], kind: str) -> None:
    """Requests of v1beta1 are flat; configuration stands where it always stood."""
    webhook, version = older
    for number, entries in enumerate(([], [of_another_driver(WRONG)], [config(RIGHT)])):
        webhook.on.apply(in_version(version, kind, f"right-{number}", entries))
    with pytest.raises(ClusterError, match="is invalid") as said:
        webhook.on.apply(in_version(version, kind, "wrong", [config(WRONG)]))
    assert all(sentence in str(said.value) for sentence in SENTENCES)


def in_version(version: str, kind: str, name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == "DeviceClass":
        spec: dict[str, Any] = {"config": [{"opaque": entry["opaque"]} for entry in entries]}
    else:
        wish = {"deviceClassName": "gpu.nvidia.com"}
        request = {"name": "gpu", **wish} if version == "v1beta1" else {"name": "gpu", "exactly": wish}
        spec = {"devices": {"requests": [request], "config": entries}}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
