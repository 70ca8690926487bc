"""Names of MIG profiles by NVIDIA's rule, against the names that the drivers of all boards state."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dra_driver.hardware.mig_profiles import computed_name, full_gpu_multiprocessors
from dra_driver.hardware.nvml_names import MIG_SUFFIXES
from dra_driver.hardware.sim.product_files import known_products
from dra_driver.model.gpu import MigPlacement, MigProfile

MIB = 1024 * 1024
BOARDS = yaml.safe_load((Path(__file__).parents[2] / "dra_driver/hardware/sim/mig.yaml").read_text())["boards"]


@pytest.mark.parametrize("key", sorted(BOARDS))
def test_computed_names_are_those_that_the_driver_states(key: str) -> None:
    totals = {product.memory_bytes for product in known_products().values() if product.mig_board == key}
    for total in totals:
        for row in BOARDS[key]["profiles"]:
            name = computed_name(row["slices"], row["memory"], total, MIG_SUFFIXES.get(row["enum"], ""))
            assert name == row["name"]


def test_halves_go_up() -> None:
    assert computed_name(1, 22 * 1024, 180 * 1024 * MIB, "") == "1g.23gb"


def _profile(number: int, slices: int, size: int, multiprocessors: int, instances: int = 1) -> MigProfile:
    return MigProfile(number, "", slices, 0, multiprocessors, 0, 0, 0, 0, 0, instances, (MigPlacement(0, size),))


def test_multiprocessors_are_those_of_the_profile_that_takes_all_slices() -> None:
    assert full_gpu_multiprocessors((_profile(19, 1, 1, 16, 7), _profile(5, 4, 4, 64), _profile(0, 7, 8, 132))) == 132
    assert full_gpu_multiprocessors((_profile(0, 4, 12, 188), _profile(32, 4, 12, 188))) == 188
    assert full_gpu_multiprocessors(()) is None
