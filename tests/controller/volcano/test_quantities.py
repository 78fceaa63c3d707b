from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.volcano.quantities import Quantity, parse_cpu, parse_memory, parse_quantity


@pytest.mark.parametrize(
    ("raw", "milli"),
    [
        ("0", 0), ("1", 1000), ("0.5", 500), (".5", 500), ("1.", 1000), ("500m", 500),
        ("2k", 2_000_000), ("1e3", 1_000_000), ("1E3", 1_000_000), ("1Ki", 1_024_000),
        ("2Gi", 2 * 2**30 * 1000), ("1.5Gi", 3 * 2**29 * 1000), ("0.0001", 1), ("1E", 10**21),
    ],
)  # fmt: skip
def test_quantities_are_parsed_as_by_kubernetes(raw: str, milli: int) -> None:
    if raw == "1E":
        assert parse_quantity(raw).milli == 10**18 * 1000
    else:
        assert parse_quantity(raw).milli == milli


@pytest.mark.parametrize(
    "raw",
    ["", " 1", "1 ", "-1", "+1", "1g", "1GI", "1KI", "Gi", ".", "1e", "1e-3", "0x1", "1_0", "١",
     "nan", "inf", "1Gi\n", "1e99", "9" * 19 + "E", "1,5"],
)  # fmt: skip
def test_a_malformed_quantity_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(raw)


@given(st.integers(min_value=0, max_value=2**62))
def test_a_quantity_round_trips(milli: int) -> None:
    assert parse_quantity(str(Quantity(milli))) == Quantity(milli)


@given(st.decimals(min_value=0, max_value=10**9, places=6), st.sampled_from(["", "k", "Ki", "Mi"]))
def test_quantities_are_rounded_up(amount: Decimal, suffix: str) -> None:
    factor = {"": 1, "k": 1000, "Ki": 1024, "Mi": 2**20}[suffix]
    milli = parse_quantity(f"{amount:f}{suffix}").milli
    assert 0 <= milli - amount * factor * 1000 < 1


def test_cpu_and_memory_have_minimum_amounts() -> None:
    with pytest.raises(ValueError, match="processor"):
        parse_cpu("0")
    with pytest.raises(ValueError, match="4Mi"):
        parse_memory("1Mi")
    with pytest.raises(ValueError, match="whole bytes"):
        parse_memory("4194304.5")
    assert str(parse_cpu("0.5")) == "500m"
    assert str(parse_memory("2048Mi")) == "2Gi"
