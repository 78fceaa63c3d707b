"""Exact Kubernetes quantities: a container gets what the job requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Final

_SUFFIXES: Final = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})(?:[eE]([+]?\d{1,2})|(m|k|M|G|T|P|E|[KMGTPE]i)?)", re.ASCII
)
_MEASURED: Final = re.compile(
    r"(\d{1,20}(?:\.\d{0,9})?)(?:[eE]([+-]?\d{1,2})|(n|u|m|k|M|G|T|P|E|[KMGTPE]i)?)", re.ASCII
)
_MEASURED_SUFFIXES: Final = {
    "n": 1e-9,
    "u": 1e-6,
    **{suffix: float(factor) for suffix, factor in _SUFFIXES.items()},
}
_LARGEST: Final = Decimal(2) ** 63 - 1
_LEAST_BANDWIDTH: Final = 10**3 * 1000
_MOST_BANDWIDTH: Final = 10**15 * 1000


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount in thousandths, so that no fraction is rounded."""

    milli: int

    def __str__(self) -> str:
        """Return the amount as Kubernetes writes it: whole, or in thousandths."""
        whole, rest = divmod(self.milli, 1000)
        return f"{self.milli}m" if rest else _with_binary_suffix(whole)

    def decimal(self) -> str:
        """Return it with a decimal suffix, as bandwidth is written; whole numbers only."""
        whole = self.milli // 1000
        for power, suffix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
            if whole and whole % 1000**power == 0:
                return f"{whole // 1000**power}{suffix}"
        return str(whole)

    def __bool__(self) -> bool:
        return self.milli > 0


def parse_quantity(raw: str) -> Quantity:
    """Return the amount in *raw*.

    Raises:
        ValueError: If it is no quantity, negative, or beyond 2^63-1.
    """
    match = _QUANTITY.fullmatch(raw)
    if match is None:
        raise ValueError("not a quantity such as 2, 500m or 2Gi")
    factor = Decimal(10) ** int(match[2]) if match[2] else _SUFFIXES[match[3] or ""]
    value = Decimal(match[1]) * factor
    if value > _LARGEST:
        raise ValueError("the quantity is too large")
    # Kubernetes rounds up, too: nobody gets less than requested.
    return Quantity(int((value * 1000).to_integral_value(ROUND_CEILING)))


def parse_cpu(raw: str) -> Quantity:
    """Return an amount of processors, at least a thousandth of one.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not quantity:
        raise ValueError("must be more than 0 processors")
    return quantity


def parse_memory(raw: str) -> Quantity:
    """Return an amount of memory in whole bytes, at least 4 MiB, below which nothing starts.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if quantity.milli % 1000:
        raise ValueError("must be whole bytes")
    if quantity.milli < 4 * 2**20 * 1000:
        raise ValueError("must be at least 4Mi")
    return quantity


def parse_size(raw: str) -> Quantity:
    """Return an amount of storage in whole bytes.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not quantity or quantity.milli % 1000:
        raise ValueError("must be whole bytes, and more than 0")
    return quantity


def parse_bandwidth(raw: str) -> Quantity:
    """Return bits per second, from 1k to 1P, as the bandwidth plugin of Kubernetes accepts.

    Raises:
        ValueError: If it is invalid.
    """
    quantity = parse_quantity(raw)
    if not _LEAST_BANDWIDTH <= quantity.milli <= _MOST_BANDWIDTH or quantity.milli % 1000:
        raise ValueError("must be whole bits per second, from 1k to 1P")
    return quantity


def measured_amount(raw: object) -> float | None:
    """Return an amount that a server has measured; None if *raw* is none.

    Measurements are finer than requests: ``12345678n`` of a processor.
    """
    match = _MEASURED.fullmatch(raw) if isinstance(raw, str) else None
    if match is None:
        return None
    factor = 10.0 ** int(match[2]) if match[2] else _MEASURED_SUFFIXES[match[3] or ""]
    return float(match[1]) * factor


def _with_binary_suffix(whole: int) -> str:
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)
