"""Fixtures of the flows: an API server, one node, and a place where processes crash."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.crash import CrashLab
from tests.flows.node import NODE, FlowNode
from tests.kube.stub_api import StubApi


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "node-uid"}}
        stub.put("nodes", node)
        yield stub


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: the paths of sockets have at most 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="flow-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def node(place: Path, api: StubApi) -> FlowNode:
    return FlowNode(place / "n", api)


@pytest.fixture(scope="module")
def lab() -> Iterator[CrashLab]:
    with CrashLab() as crashes:
        yield crashes
