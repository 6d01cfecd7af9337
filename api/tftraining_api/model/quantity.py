"""Quantities of Kubernetes, such as 2Gi or 250m, as whole numbers. Pure."""

import re
from decimal import ROUND_CEILING, Decimal

MOST = 2**63 - 1  # a larger quantity counts as this one, as in Kubernetes
_BINARY = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {
    **{letter: Decimal(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{letter: Decimal(1000) ** -(power + 1) for power, letter in enumerate("mun")},
}
_FACTORS = {"": Decimal(1), **{name: Decimal(factor) for name, factor in _BINARY.items()}, **_DECIMAL}
# Bounded, because templates hold text that nobody has checked yet.
_QUANTITY = re.compile(r"\+?(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:([KMGTPE]i|[kMGTPEmun])|[eE]([+-]?\d{1,2}))?")


def in_bytes(quantity: object) -> int | None:
    """The quantity as a whole number of bytes, rounded up; None if it is no quantity above 0."""
    value = _value(quantity)
    return None if value is None else _whole(value) or None


def in_milli(quantity: object) -> int | None:
    """The quantity as a whole number of thousandths, such as millicores, rounded up; None if it is no quantity."""
    value = _value(quantity)
    return None if value is None else _whole(value * 1000)


def _value(quantity: object) -> Decimal | None:
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    return Decimal(number) * _FACTORS[suffix or ""] * Decimal(10) ** int(exponent or 0)


def _whole(value: Decimal) -> int:
    return min(int(value.to_integral_value(ROUND_CEILING)), MOST)
