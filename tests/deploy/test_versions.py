"""The chart and image of the version before this one, and how they are got at.

On request only (`DRA_E2E_LIVE=1`, root, about 40 s) on a cluster: an upgrade from it and a rollback to it, with pods that use GPUs.
On kind only where that is the one that is asked for (`make e2e CLUSTER=kind`), with the images that need no Docker to be made.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.helm.schema import CHART
from e2e.choice import CHOICES, chosen
from e2e.cluster import Options
from e2e.driver_image import ROOT, driver_image
from e2e.installation import DRIVER, until
from e2e.versions import NoHistory, version_before
from tests.deploy.installed import Installed, Traffic, pod

LIVE = pytest.mark.skipif(os.environ.get("DRA_E2E_LIVE") != "1", reason="DRA_E2E_LIVE=1 is not set")
LEFT_FOR_CLAIMS = (f"/run/{DRIVER}/ledger/claims", "/var/run/cdi")
ONE_WEBHOOK = {"webhook": {"replicas": 1}}  # rolled out in half the time; two are in test_installed.py
IMAGE, IMAGE_BEFORE = "dra-driver-e2e:chart", "dra-driver-e2e:before"


def git(*arguments: str) -> str:
    settings = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *settings, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    """One with a file in two versions, and the commit of the first."""
    place = tmp_path / "repository"
    git("init", "-q", str(place))
    for content in ("old", "new"):
        (place / "file").write_text(content)
        git("-C", str(place), "add", "file")
        git("-C", str(place), "commit", "-q", "-m", content)
    return place, git("-C", str(place), "rev-parse", "HEAD^")


def test_a_version_is_taken_out_of_the_history_as_it_was(tmp_path: Path, repository: tuple[Path, str]) -> None:
    place, commit = repository
    tree = version_before(tmp_path / "trees" / "before", place, commit)
    assert [(path.name, path.read_text()) for path in tree.iterdir()] == [("file", "old")]
    assert list(tree.parent.iterdir()) == [tree]


def test_without_its_history_a_version_is_not_to_be_had_and_how_to_get_it_is_said(
    tmp_path: Path, repository: tuple[Path, str]
) -> None:
    place, commit = repository
    git("clone", "-q", "--depth", "1", place.as_uri(), str(tmp_path / "shallow"))
    (tmp_path / "archive").mkdir()  # as it is downloaded: no repository at all
    for source in ("shallow", "archive"):
        with pytest.raises(NoHistory, match=rf"taking .* \(commit {commit[:12]}\).*fetch --unshallow.*or clone"):
            version_before(tmp_path / "before", tmp_path / source, commit)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return version_before(tmp_path_factory.mktemp("versions") / "before")
    except NoHistory as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=CHOICES)
def versions(request: pytest.FixtureRequest, tree: Path, helm: Path) -> Iterator[tuple[Installed, Installed]]:
    """The version before and this one, on the same cluster; neither is installed."""
    if request.param != chosen():
        pytest.skip(f"E2E_CLUSTER={request.param} is not set")
    cluster = CHOICES[request.param].cluster(Options(name="versions", nodes=("node-a",)))
    cluster.down()
    cluster.up()
    try:
        for image, source in ((IMAGE_BEFORE, tree), (IMAGE, ROOT)):
            cluster.load(driver_image(image, source))
        yield Installed(cluster, helm, IMAGE_BEFORE, tree / CHART.relative_to(ROOT)), Installed(cluster, helm, IMAGE)
    finally:
        cluster.down()


@LIVE
@pytest.mark.timeout(300, func_only=True)  # the cluster may have to be built
def test_nobody_notices_an_upgrade_from_the_version_before_and_a_rollback_to_it(
    versions: tuple[Installed, Installed],
) -> None:
    before, this = versions
    before.install(**ONE_WEBHOOK)
    before.apply(pod("from-before", gpus=2))
    before.wait_for_pod("from-before")
    traffic = Traffic(before)
    with traffic.flowing():
        this.upgrade(**ONE_WEBHOOK)
        assert _image(this) == IMAGE
        this.apply(pod("from-this", gpus=2))
        this.wait_for_pod("from-this")
        this.rollback(1)
        assert _image(before) == IMAGE_BEFORE
        before.apply(pod("from-before-again"))
        before.wait_for_pod("from-before-again")
        until("pods to have come and gone", lambda: traffic.started >= 4 or traffic.trouble)
    assert traffic.fewest_devices == before.all_gpus
    names = ("from-before", "from-this", "from-before-again")
    held = [uuid for name in names for uuid in before.execute(name, "nvidia-smi", "-L").splitlines()]
    assert len(held) == 5
    assert len({line.partition("UUID: ")[2] for line in held}) == 5
    for name in names:
        before.delete("pod", name)
    until("nothing to be left of any claim", lambda: not any(before.on_node("node-a", at) for at in LEFT_FOR_CLAIMS))
    assert before.refused_calls() == []


def _image(installed: Installed) -> Any:
    return installed.agent("node-a")["spec"]["containers"][0]["image"]
