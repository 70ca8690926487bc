"""Columns that line up, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
