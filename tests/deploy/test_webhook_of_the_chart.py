"""The webhook in the chart: certificates by three ways, and no more rights than the way needs."""

from __future__ import annotations

from collections.abc import Callable

from tests.deploy.conftest import Objects, manifests

Render = Callable[..., Objects]
NAME = "gpu-dra-driver-webhook"


def _arguments(objects: Objects) -> list[str]:
    arguments: list[str] = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def test_by_default_it_keeps_its_certificates_itself(render: Render) -> None:
    objects = render()
    assert f"--tls-secret=dra-driver/{NAME}-tls" in _arguments(objects)
    assert f"--tls-names={NAME}.dra-driver.svc" in _arguments(objects)
    assert f"--webhook-configuration={NAME}" in _arguments(objects)
    # Without data, so that an upgrade leaves what is in it.
    assert "data" not in objects["Secret", f"{NAME}-tls"]
    (webhook,) = objects["ValidatingWebhookConfiguration", NAME]["webhooks"]
    assert webhook["clientConfig"] == {
        "service": {"name": NAME, "namespace": "dra-driver", "path": "/validate", "port": 443}
    }
    assert objects["Role", NAME]["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"{NAME}-tls"], "verbs": ["get", "update"]}
    ]
    (rule,) = objects["ClusterRole", NAME]["rules"]
    assert rule["resourceNames"] == [NAME]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        assert objects[kind, NAME]["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "dra-driver"}]


def test_it_is_asked_what_the_plain_manifest_says(render: Render) -> None:
    (plain,) = [item for item in manifests("webhook") if item["kind"] == "ValidatingWebhookConfiguration"]
    (ours,) = render({"driverName": "gpu.example.com"})["ValidatingWebhookConfiguration", NAME]["webhooks"]
    for key in ("rules", "matchPolicy", "sideEffects", "timeoutSeconds", "failurePolicy", "admissionReviewVersions"):
        assert ours[key] == plain["webhooks"][0][key]
    assert ours["name"] == "opaque-configuration.gpu.example.com"
    assert '== "gpu.example.com"' in ours["matchConditions"][0]["expression"]


def test_with_cert_manager_it_has_no_rights(render: Render) -> None:
    values = {"webhook": {"tls": {"mode": "cert-manager"}}}
    objects = render(values, "--api-versions", "cert-manager.io/v1")
    certificate = objects["Certificate", NAME]["spec"]
    assert certificate["dnsNames"] == [f"{NAME}.dra-driver.svc"]
    assert certificate["commonName"] == NAME
    # It stays when cert-manager goes, and must not be in the way of the Secret of mode own.
    assert ("Secret", certificate["secretName"]) not in render()
    assert ("Issuer", certificate["issuerRef"]["name"]) in objects
    configuration = objects["ValidatingWebhookConfiguration", NAME]
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": f"dra-driver/{NAME}"}
    _needs_no_rights(objects, certificate["secretName"])
    values = {
        "webhook": {
            "tls": {"mode": "cert-manager", "certManager": {"issuerType": "clusterissuer", "issuerName": "ours"}}
        }
    }
    objects = render(values, "--api-versions", "cert-manager.io/v1")
    assert objects["Certificate", NAME]["spec"]["issuerRef"] == {"kind": "ClusterIssuer", "name": "ours"}
    assert "commonName" not in objects["Certificate", NAME]["spec"], "issuers of others may want a domain there"
    assert not [name for kind, name in objects if kind == "Issuer"]


def test_with_a_given_secret_it_has_no_rights(render: Render) -> None:
    objects = render({"webhook": {"tls": {"mode": "secret", "secret": {"name": "mine", "caBundle": "QUJD"}}}})
    (webhook,) = objects["ValidatingWebhookConfiguration", NAME]["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == "QUJD"
    _needs_no_rights(objects, "mine")


def _needs_no_rights(objects: Objects, secret: str) -> None:
    pod = objects["Deployment", NAME]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["volumes"] == [{"name": "tls", "secret": {"secretName": secret}}]
    assert {"--tls-cert=/tls/tls.crt", "--tls-key=/tls/tls.key"} <= set(_arguments(objects))
    assert not [kind for kind, name in objects if name == NAME and kind in {"Role", "ClusterRole", "RoleBinding"}]


def test_it_is_nobody_and_can_do_nothing(render: Render) -> None:
    pod = render()["Deployment", NAME]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_it_can_be_left_out(render: Render) -> None:
    assert not [name for _, name in render({"webhook": {"enabled": False}}) if "webhook" in name]
    one = render({"webhook": {"replicas": 1, "failurePolicy": "Ignore"}})
    assert not [kind for kind, _ in one if kind == "PodDisruptionBudget"]
    assert one["ValidatingWebhookConfiguration", NAME]["webhooks"][0]["failurePolicy"] == "Ignore"
