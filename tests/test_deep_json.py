"""Nested deeper than Python decodes: cut, and everything else as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver import deep_json
from dra_driver.deep_json import DEPTH

LEVELS = 100_000  # deeper than any Python's own limit

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(opening: str, closing: str, levels: int = LEVELS) -> str:
    return opening * levels + "1" + closing * levels


@given(JSON)
def test_what_python_decodes_is_decoded_as_ever(value: Any) -> None:
    assert deep_json.loads(json.dumps(value).encode()) == value


@settings(deadline=None, max_examples=30)
@given(JSON, JSON, st.sampled_from([("[", "]"), ('{"a":', "}"), ('[{"]}":"\\"[",', "}]")]))
def test_around_what_is_too_deep_everything_is_as_it_was(before: Any, after: Any, brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    deep = nested(opening, closing) if not opening.endswith(",") else nested(opening + '"b":', closing)
    text = f'{{"before": {json.dumps(before)}, "deep": {deep}, "after": {json.dumps(after)}}}'
    found = deep_json.loads(text.encode())
    assert (found["before"], found["after"]) == (before, after)
    assert list(found) == ["before", "deep", "after"]


def test_it_is_cut_at_one_depth_wherever_it_stands() -> None:
    found = deep_json.loads(f"[{nested('[', ']')}, {nested('[', ']')}]".encode())
    assert len(found) == 2
    for item in found:
        levels, inner = 1, item
        while inner is not None:
            (inner,) = inner
            levels += 1
        assert levels == DEPTH - 1, "the outer list is a level, too"


@pytest.mark.parametrize(
    "text", ["[" * LEVELS, '{"a":' * LEVELS, "]" * LEVELS, '["' + "[" * LEVELS, "[" * LEVELS + "}" * 9]
)
def test_what_is_no_json_is_refused_as_ever(text: str) -> None:
    with pytest.raises(ValueError, match="line 1 column"):
        deep_json.loads(text.encode())
