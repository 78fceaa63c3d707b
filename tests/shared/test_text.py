"""Tests that text of others is reduced to plain text and bounded, and strictly read as a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text import (
    MOST,
    decimal_number,
    plain_tail,
    plain_text,
    retry_after,
    whole_number,
    without_controls,
    without_secrets,
)

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


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, ""),
        ("  as it is\n", "as it is"),
        ("nul\x00and\x07bell", "nul and bell"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07text", "red text"),
        ("two\r\nlines", "two\nlines"),
        ("half \ud800 of a pair", "half \ufffd of a pair"),
        ("gnp.\u202eexe", "gnp. exe"),
        ("a\u200fb\u061cc", "a b c"),
        (17, "17"),
    ],
)
def test_only_plain_text_is_kept(said: object, shown: str) -> None:
    assert plain_text(said, 100) == shown


def test_a_long_text_keeps_its_start_and_a_log_its_end() -> None:
    assert plain_text("abcdef", 4) == "abc…"
    assert plain_tail("abcdef", 4) == "…def"
    assert plain_text("abcd", 4) == plain_tail("abcd", 4) == "abcd"


@given(st.text(st.characters(), max_size=300), st.integers(1, 50))
def test_any_text_can_be_stored_and_sent(said: str, most: int) -> None:
    for shown in (plain_text(said, most), plain_tail(said, most)):
        assert len(shown) <= most
        assert "\x00" not in shown
        assert "\x1b" not in shown
        shown.encode()


def test_secrets_are_hidden_in_sanitised_text() -> None:
    secrets = ["hunter2", "hunter2-and-more", "with\ttab\n", "abc"]
    said = plain_text('exec: "hunter2-and-more hunter2 with\ttab" abc', 100)
    assert without_secrets(said, secrets) == 'exec: "*** *** ***" abc'


def test_a_line_has_no_controls_and_one_direction() -> None:
    assert without_controls("two\nlines\x9b \u202exe\u200f.") == "two lines   xe ."


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


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("120", 120.0), (" 120 ", 120.0), ("0", 0.0), ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0),
        ("Wed, 21 Oct 2015 07:28:10", 10.0), ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("", None), ("soon", None), ("-5", None), ("1e9", None), ("²", None), ("9" * 500, None),
        ("Wed, 99 Oct 2015 07:28:10 GMT", None), ("Wed, 21 Oct 99999 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(raw: str, seconds: float | None) -> None:
    assert retry_after(raw, now=1445412480.0) == seconds
