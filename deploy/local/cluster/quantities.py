"""Kubernetes quantities as numbers."""

import math
import re
from typing import Final

NOT_A_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
"""Kubernetes' message for a text that is no quantity."""

_UNITS: Final = {
    "": 1,
    "n": 1e-9,
    "u": 1e-6,
    "m": 0.001,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}


def quantity(text: str) -> float:
    """Return a quantity such as ``500m``, ``2Gi`` or ``1e3`` as a number.

    Raises:
        ValueError: If it is no quantity.
    """
    match = re.fullmatch(
        r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", text
    )
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a quantity: {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def shown_amount(amount: float) -> str:
    """Return *amount* as the text of a quantity."""
    return str(int(amount)) if amount == int(amount) else f"{math.ceil(amount * 1000)}m"
