"""The generated pages say what the tables say now."""

from __future__ import annotations

import difflib

import pytest

from tests.docs.references import PAGES, ROOT


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_tables_say(name: str) -> None:
    expected, produced = (ROOT / name).read_text(), PAGES[name]()
    if produced != expected:
        lines = difflib.unified_diff(expected.splitlines(), produced.splitlines(), name, "code", "", "", 1)
        difference = "\n".join(line[:200] for line in lines)
        pytest.fail(f"{name} is stale: run `make golden` and commit it. The difference:\n\n{difference}", pytrace=False)
