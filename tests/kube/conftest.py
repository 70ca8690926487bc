from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.kube.client import KubeApi
from tests.kube.stub_api import StubApi


@pytest.fixture
def stub() -> Iterator[StubApi]:
    with StubApi() as api:
        yield api


@pytest.fixture
def api(stub: StubApi, tmp_path: Path) -> Iterator[KubeApi]:
    client = KubeApi(stub.kubeconfig(tmp_path))
    yield client
    client.close()
