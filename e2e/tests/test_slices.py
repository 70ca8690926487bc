"""ResourceSlices that somebody else changes are put right."""

from __future__ import annotations

import pytest

from e2e.installation import until
from e2e.tests.space import Space


def test_slices_deleted_by_hand_come_back_as_they_were(space: Space) -> None:
    before = [item["spec"]["devices"] for item in space.on.slices("node-b")]
    space.on.kubectl("delete", "resourceslices", "--all", "--wait=true")
    again = until("the slices", lambda: (len(space.on.devices()) == 14 or None) and space.on.slices("node-b"), 30)
    assert [item["spec"]["devices"] for item in again] == before


def test_a_slice_edited_by_hand_is_put_right(space: Space) -> None:
    (listed,) = space.on.slices("node-b")
    path = f"/apis/resource.k8s.io/v1/resourceslices/{listed['metadata']['name']}"
    wrong = space.on.cluster.request("GET", path)
    right = wrong["spec"]["devices"]
    wrong["spec"]["devices"] = right[:2]
    space.on.cluster.request("PUT", path, wrong)
    until("six devices", lambda: len(space.on.devices("node-b")) == 6, 30)
    assert space.on.slices("node-b")[0]["spec"]["devices"] == right


@pytest.mark.once
def test_slices_belong_to_their_node_and_are_complete(space: Space) -> None:
    for node in space.on.machines:
        uid = space.on.cluster.request("GET", f"/api/v1/nodes/{node}")["metadata"]["uid"]
        slices = space.on.slices(node)
        assert [item["metadata"]["ownerReferences"][0]["uid"] for item in slices] == [uid] * len(slices)
        assert {item["spec"]["pool"]["name"] for item in slices} == {node}
        assert {item["spec"]["pool"]["resourceSliceCount"] for item in slices} == {len(slices)}
        assert len({item["spec"]["pool"]["generation"] for item in slices}) == 1
