"""Kubernetes quantities: the text that the API server would answer with, and their exact value for comparison. Pure."""

from __future__ import annotations

import re
from fractions import Fraction

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE: dict[str, Fraction] = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(_BINARY)},
    **{
        suffix: Fraction(1000) ** power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
}
# apimachinery resource.Quantity; a number may also carry a decimal exponent instead of a suffix ("E" alone is exa).
_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|))", re.ASCII
)


def quantity(amount: int) -> str:
    """The canonical BinarySI form: the largest suffix that divides, `85520809984` -> `81559Mi`, `132` -> `132`."""
    power = 0
    while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY[power]}"


def value(text: str) -> Fraction | None:
    """Exact value of a quantity, None for anything that is not one."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent[1:]) if exponent else _SCALE[suffix]
    return Fraction(number) * scale
