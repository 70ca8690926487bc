"""Fixtures of the hardware room's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `fake_host` beside the tests

from fake_host import FakeHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    path = tmp_path / "host"
    path.mkdir()
    return FakeHost(path)
