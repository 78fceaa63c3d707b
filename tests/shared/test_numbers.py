"""Tests strict numbers: forms that only Python accepts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.numbers import MOST, decimal_number, whole_number

NOT_NUMBERS = [
    "",
    " ",
    "5_0",
    " 5",
    "5 ",
    "5\n",
    "+5",
    "-5",
    "-0",
    "٥",
    "²",
    "0x5",
    "x",
    "nan",
    "inf",
]


@pytest.mark.parametrize("raw", [*NOT_NUMBERS, "5.0", "1e3", "9" * 20, "9" * 5000, str(MOST + 1)])
def test_python_specific_integer_syntax_is_refused(raw: str) -> None:
    assert whole_number(raw) is None


@pytest.mark.parametrize("raw", [*NOT_NUMBERS, ".", "1e", "1e999", "1.5.5", "infinity", "1e1_0"])
def test_python_specific_decimal_syntax_is_refused(raw: str) -> None:
    assert decimal_number(raw) is None


@given(st.integers(0, MOST))
def test_every_whole_number_is_read_as_it_is_written(number: int) -> None:
    assert whole_number(str(number)) == number


@given(st.floats(0, allow_nan=False, allow_infinity=False).map(abs))
def test_every_decimal_number_is_read_as_it_is_written(number: float) -> None:
    assert decimal_number(repr(number)) == number


def test_an_integer_out_of_range_is_refused() -> None:
    assert (whole_number("65535", most=65535), whole_number("65536", most=65535)) == (65535, None)


def test_a_decimal_number_may_omit_one_side_of_its_point() -> None:
    assert (decimal_number(".5"), decimal_number("5."), decimal_number("007")) == (0.5, 5.0, 7.0)
