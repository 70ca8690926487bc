"""JSON that was written by anybody. Python decodes about a thousand levels of nesting; the API server lets through five thousand
in the configuration of a claim, and one such claim would keep us from reading any list that it is in.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Objects of the API have about ten levels, managedFields some more.
DEPTH = 200

_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*"|[\[\]{}]', re.DOTALL)


def loads(data: bytes) -> Any:
    """As json.loads, but for what Python cannot decode: that comes with null for whatever is nested deeper than DEPTH. Nothing
    that we understand is."""
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(_cut(data))


def _cut(data: bytes) -> bytes:
    kept, end, depth, begin = [], 0, 0, 0
    for token in _TOKEN.finditer(data):
        if token[0] in b"[{":
            depth += 1
            if depth == DEPTH:
                begin = token.start()
        elif token[0] in b"]}":
            if depth == DEPTH:
                kept += [data[end:begin], b"null"]
                end = token.end()
            depth -= 1
    if depth >= DEPTH:  # it is never closed, and no JSON
        return b"".join([*kept, data[end:begin]])
    return b"".join([*kept, data[end:]])
