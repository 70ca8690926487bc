from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.kube.claims import ApiClaims, decode
from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.kube.nodes import NodeLookup
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, OpaqueConfig
from dra_driver.model.errors import DriverError, GiveUp, RetryLater, TellUser
from tests.kube.stub_api import StubApi

CLAIMS = "resource.k8s.io/resourceclaims"
DRIVER = "gpu.nvidia.com"
REF = ClaimRef("u1", "ml", "train")


def opaque(driver: str, **parameters: Any) -> dict[str, Any]:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def claim(**status: Any) -> dict[str, Any]:
    allocation = {
        "devices": {
            "results": [
                {"request": "nic", "driver": "nic.example.com", "pool": "node-1", "device": "eth0"},
                {"request": "gpus/big", "driver": DRIVER, "pool": "node-1", "device": "gpu-1", "adminAccess": None},
                {"request": "look", "driver": DRIVER, "pool": "node-1", "device": "gpu-0", "adminAccess": True},
                {"request": "part", "driver": DRIVER, "pool": "node-1", "device": "gpu-0", "shareID": "s-1"},
            ],
            "config": [
                {"source": "FromClass", "requests": None, **opaque("nic.example.com", mtu=9000)},
                {"source": "FromClass", **opaque(DRIVER, kind="GpuConfig", deep={"a": [1, None]})},
                {"source": "FromClaim", "requests": ["gpus", "part"], **opaque(DRIVER, kind="MigDeviceConfig")},
                {"source": "FromClaim", "requests": []},
            ],
        }
    }
    return {
        "metadata": {"namespace": "ml", "name": "train", "uid": "u1"},
        "spec": {},
        "status": status or {"allocation": allocation},
    }


def read(claims: ApiClaims, ref: ClaimRef) -> Claim:
    (answer,) = claims.ask([ref])
    return answer()


@pytest.fixture
def claims(api: KubeApi) -> ApiClaims:
    return ApiClaims(api, Discovery(api), DRIVER)


@pytest.mark.parametrize("served", ["v1", "v1beta2", "v1beta1"])
def test_only_our_results_and_configs_in_the_order_of_the_object(stub: StubApi, claims: ApiClaims, served: str) -> None:
    stub.served = [served]
    stub.put(CLAIMS, claim())
    found = read(claims, REF)
    assert found.ref == REF
    assert found.results == (
        AllocationResult("gpus/big", "node-1", "gpu-1"),
        AllocationResult("look", "node-1", "gpu-0", admin_access=True),
        AllocationResult("part", "node-1", "gpu-0", share_id="s-1"),
    )
    assert found.results[0].base_request == "gpus"
    assert found.configs == (
        OpaqueConfig("FromClass", (), {"kind": "GpuConfig", "deep": {"a": [1, None]}}),
        OpaqueConfig("FromClaim", ("gpus", "part"), {"kind": "MigDeviceConfig"}),
    )
    assert stub.requests[-1].url == f"/apis/resource.k8s.io/{served}/namespaces/ml/resourceclaims/train"


def test_a_read_is_one_get(stub: StubApi, claims: ApiClaims) -> None:
    stub.put(CLAIMS, claim())
    for _ in range(3):
        read(claims, REF)
    assert stub.count("GET", "resourceclaims") == 3
    assert stub.count("GET", "/apis/resource.k8s.io$") == 1


def test_a_claim_that_is_gone_replaced_or_not_allocated_is_given_up(stub: StubApi, claims: ApiClaims) -> None:
    with pytest.raises(GiveUp, match=r"claim ml/train .UID u1.: it does not exist any more"):
        read(claims, REF)
    stub.put(CLAIMS, claim())
    with pytest.raises(GiveUp, match="now has UID u1"):
        read(claims, ClaimRef("u0", "ml", "train"))
    for status in ({"reservedFor": []}, {"allocation": None}, {"allocation": {}}):
        stub.put(CLAIMS, claim(**status))
        with pytest.raises(GiveUp, match="not allocated"):
            read(claims, REF)
    with pytest.raises(GiveUp, match="namespace and a name"):
        read(claims, ClaimRef("u1", "ml", ""))


def test_a_claim_without_results_of_ours_is_read_all_the_same(stub: StubApi, claims: ApiClaims) -> None:
    stub.put(CLAIMS, claim(allocation={"devices": {}}, x=1))
    stub.put(CLAIMS, claim(allocation={"nodeSelector": {}}))
    assert read(claims, REF).results == ()


def test_exists_says_no_only_on_the_word_of_the_api_server(stub: StubApi, claims: ApiClaims) -> None:
    assert not claims.exists(REF)
    stub.put(CLAIMS, claim())
    assert claims.exists(REF)
    assert not claims.exists(ClaimRef("u0", "ml", "train"))
    for status in (403, 401, 404, 410, 429, 500):
        stub.fail("GET", "resourceclaims", status, times=2, body=b"<html>")
        with pytest.raises(RetryLater):
            claims.exists(REF)
        stub.faults.clear()
    stub.fail("GET", "resourceclaims", drop=True, times=2)
    with pytest.raises(RetryLater):
        claims.exists(REF)
    stub.put(CLAIMS, {"metadata": {"namespace": "ml", "name": "train", "uid": ""}})
    with pytest.raises(RetryLater):
        claims.exists(REF)


def test_an_upgrade_that_takes_the_version_away_is_followed_and_takes_no_claim_with_it(
    stub: StubApi, claims: ApiClaims
) -> None:
    stub.served = ["v1beta1"]
    stub.put(CLAIMS, claim())
    assert claims.exists(REF)
    stub.served = ["v1", "v1beta2"]
    assert claims.exists(REF)
    assert len(read(claims, REF).results) == 3


def test_a_claim_is_found_by_uid_alone_over_pages(stub: StubApi, claims: ApiClaims) -> None:
    for n in range(700):
        stub.put(CLAIMS, {"metadata": {"namespace": "ml", "name": f"c{n:03}", "uid": f"uid-of-{n}"}})
    assert claims.find("uid-of-650") == ClaimRef("uid-of-650", "ml", "c650")
    assert claims.find("nobody") is None


def test_parameters_that_are_no_object_are_given_up_with_a_reason() -> None:
    allocated = claim()
    allocated["status"]["allocation"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": [1]}}]
    with pytest.raises(GiveUp, match="no JSON object"):
        decode(REF, allocated, DRIVER)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "status",
                    "allocation",
                    "devices",
                    "results",
                    "config",
                    "driver",
                    "request",
                    "pool",
                    "device",
                    "opaque",
                ]
            ),
            inner | st.just(DRIVER),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(_json, _json, _json)
def test_no_shape_of_a_claim_raises_anything_but_our_errors(one: Any, two: Any, three: Any) -> None:
    shapes = ({"status": one}, {"status": {"allocation": {"devices": two}}})
    allocated = {"devices": {"results": [{"driver": DRIVER, "request": one}, two], "config": [{"opaque": three}, one]}}
    for shape in (*shapes, {"status": {"allocation": allocated}}):
        try:
            decode(REF, json.loads(json.dumps(shape)), DRIVER)
        except DriverError:
            continue


def test_the_newest_version_that_both_sides_know_is_taken(stub: StubApi, api: KubeApi) -> None:
    for served, taken in (
        (["v1beta1", "v1", "v1beta2"], "v1"),
        (["v1alpha3", "v1beta1", "v1beta2"], "v1beta2"),
        (["v2", "v1beta1"], "v1beta1"),
    ):
        stub.served = served
        assert Discovery(api).version() == taken


@pytest.mark.parametrize("served", [[], ["v1alpha3"]])
def test_without_dra_the_user_is_told_how_to_enable_it(stub: StubApi, api: KubeApi, served: list[str]) -> None:
    stub.served = served
    with pytest.raises(TellUser, match="enable Dynamic Resource Allocation"):
        Discovery(api).version()


def test_an_api_server_that_is_down_is_not_a_cluster_without_dra(stub: StubApi, api: KubeApi) -> None:
    stub.fail("GET", "/apis/resource.k8s.io", 503)
    discovery = Discovery(api)
    with pytest.raises(RetryLater):
        discovery.version()
    assert discovery.version() == "v1"


def test_the_release_is_read_with_and_without_a_plus(stub: StubApi, api: KubeApi) -> None:
    stub.release = ("1", "34+")
    discovery = Discovery(api)
    assert discovery.release() == (1, 34)
    assert discovery.release() == (1, 34)
    assert stub.count("GET", "/version") == 1


def test_the_node_tells_its_uid(stub: StubApi, api: KubeApi) -> None:
    with pytest.raises(GiveUp):
        NodeLookup(api, "node-1").uid()
    stub.put("nodes", {"metadata": {"name": "node-1", "uid": "n-1"}})
    assert NodeLookup(api, "node-1").uid() == "n-1"


def test_a_claim_nested_deeper_than_python_decodes_hides_neither_itself_nor_others(
    stub: StubApi, claims: ApiClaims, api: KubeApi
) -> None:
    """The API server stores 5,000 levels in the parameters of any driver; Python decodes about 1,000."""
    whole = claim()
    whole["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = "DEEP"
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    text = json.dumps(whole).replace('"DEEP"', deep)
    stub.fail("GET", "/resourceclaims/train", 200, body=text.encode())
    assert read(claims, REF).configs[0].parameters == {"kind": "GpuConfig", "deep": {"a": [1, None]}}
    stub.fail("GET", "/resourceclaims", 200, body=f'{{"items": [{text}]}}'.encode())
    assert claims.find("u1") == REF
