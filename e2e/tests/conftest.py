"""One cluster a release, one after another: node-a is a DGX H100, node-b has 4 x L40S and 2 x A100. Every test has a
namespace of its own, and must leave nothing behind on any node: no ledger record, no holder, no CDI spec.

Scenarios run on every release, those marked `once` on the first; `gate(Name=True)` skips where the API server says that this
feature gate is off. `E2E_RELEASES=1.37,1.34` chooses releases, `E2E_KEEP_LOGS=1` leaves the logs below the cluster's directory.

E2E_CLUSTER=kind runs them on kind, with the driver installed by its chart: on the release of the node image alone.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from e2e.choice import CHOICES, DEFAULT
from e2e.choice import chosen as chosen_cluster
from e2e.cluster import Cluster, Options, Unsupported
from e2e.demo import MACHINES
from e2e.installation import Installation
from e2e.tests.space import Space

# The release of the binaries first; API server, scheduler and controller manager emulate the others.
RELEASES = ("1.37", "1.36", "1.35", "1.34")
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "once: does not depend on the release of Kubernetes; runs on one only")
    config.addinivalue_line("markers", "gate(Name=True): only where this feature gate of the API server is on (or off)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" not in metafunc.fixturenames:
        return
    chosen = os.environ.get("E2E_RELEASES")
    releases = tuple(chosen.split(",")) if chosen else RELEASES
    if unknown := set(releases) - set(RELEASES):
        raise pytest.UsageError(f"E2E_RELEASES: {', '.join(sorted(unknown))} is none of {', '.join(RELEASES)}")
    if metafunc.definition.get_closest_marker("once") or chosen_cluster() != DEFAULT:  # kind serves its own release
        releases = releases[:1]
    metafunc.parametrize("release", releases, scope="session", indirect=True)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _OneWorkerForACluster(config, log)


class _OneWorkerForACluster(LoadScopeScheduling):  # type: ignore[misc]
    """For `pytest -n`. xdist has `--dist loadgroup` for this, which pytest 9.2 has broken (it sets a nodeid that is no more)."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        release = re.search(r"\[(1\.\d+)", test) if file.startswith("e2e/tests/") else None
        return release[1] if release else file


@pytest.hookimpl(trylast=True)  # pytest orders by parameters of the session itself
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: item.path.name != "test_installed.py"
    )  # kind takes longest: the other clusters go beside it
    for item in items:
        # The first cluster on a machine is built for minutes; whatever a fixture waits for has a limit of its own.
        item.add_marker(pytest.mark.timeout(300, func_only=True))
        ours = item.path.is_relative_to(Path(__file__).parent)
        if ours and chosen_cluster() != DEFAULT and "release" not in getattr(item, "fixturenames", ()):
            item.add_marker(
                pytest.mark.skip(reason=f"it brings up a cluster of its own, which is none of {chosen_cluster()}")
            )


@contextmanager
def _skipping_what_is_unsupported() -> Iterator[None]:
    """What a cluster, or a way to install, cannot do it says itself when a scenario asks for it."""
    try:
        yield
    except Unsupported as reason:
        pytest.skip(str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with _skipping_what_is_unsupported():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with _skipping_what_is_unsupported():
        return (yield)


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def been_up() -> set[str]:
    """The releases whose clusters have come up so far."""
    return set()


@pytest.fixture(scope="session")
def cluster(release: str, been_up: set[str], request: pytest.FixtureRequest) -> Iterator[Cluster]:
    emulate = None if release == RELEASES[0] else release
    options = Options(name=f"e2e-{release.replace('.', '-')}", nodes=tuple(MACHINES), emulate=emulate)
    made = CHOICES[chosen_cluster()].cluster(options)
    # The first time on a machine the cluster is built for minutes: its own lines are all there is to see then.
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture and not been_up else nullcontext():
        made.up()
    been_up.add(release)
    try:
        version = made.request("GET", "/version")
        assert f"{version['emulationMajor']}.{version['emulationMinor']}" == release
        yield made
    finally:
        made.down(keep_logs=bool(os.environ.get("E2E_KEEP_LOGS")))


@pytest.fixture(scope="session")
def installation(cluster: Cluster) -> Installation:
    # Quicker than the defaults: tests wait for what the agent looks at now and then.
    made = CHOICES[chosen_cluster()].installation(cluster, MACHINES, keeper_s="1", rescan_s="2", log_level="debug")
    made.install()
    return made


@pytest.fixture
def space(request: pytest.FixtureRequest, installation: Installation) -> Iterator[Space]:
    for marker in request.node.iter_markers("gate"):
        for gate, wanted in marker.kwargs.items():
            found = bool(installation.gate(gate))
            if found is not wanted:
                pytest.skip(f"feature gate {gate} is {'on' if found else 'off'} on this API server")
    made = Space(installation, f"test-{next(_numbers)}")
    made.make()
    yield made
    made.clear()


@pytest.fixture
def agent_again(space: Space) -> Iterator[None]:
    """Whatever a test did to the agent of node-b, one runs afterwards."""
    yield
    if space.on.agents["node-b"].poll() is not None:
        space.on.start_agent("node-b")
