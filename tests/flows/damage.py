"""What happens to a file that matters: cut off, emptied, a bit flipped."""

from __future__ import annotations

from pathlib import Path

import pytest


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


damages = pytest.mark.parametrize("damage", [cut_off, empty, flip_a_bit])
