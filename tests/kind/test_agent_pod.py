from __future__ import annotations

from e2e.agent_pod import plain

STAMP = b"2026-11-21T02:12:17.043000001Z stdout "


def test_lines_of_a_container_are_as_they_were_written() -> None:
    lines = [STAMP + b'F {"msg":"a b"}\n', STAMP + b"P long \n", STAMP + b"F line\n", STAMP + b"F \n"]
    assert b"".join(map(plain, lines)) == b'{"msg":"a b"}\nlong line\n\n'
