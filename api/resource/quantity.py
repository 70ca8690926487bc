"""Kubernetes quantities, read strictly: what the API server refuses is refused here too."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(r"^\+?(\d+(?:\.\d*)?|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|m|k|M|G|T|P|E|[eE][+-]?\d{1,2})?$", re.ASCII)
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** (power + 1) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Decimal(1024) ** (power + 1) for power, suffix in enumerate("KMGTPE")},
}


def parse_quantity(text: str) -> Decimal:
    """The non-negative amount in base units; ValueError with a sentence for the user."""
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity like 512Mi, 8Gi or 1000000")
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return Decimal(f"{number}{suffix}")
    return Decimal(number) * _FACTORS[suffix]
