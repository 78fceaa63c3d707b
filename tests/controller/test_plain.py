"""Tests that text from other systems is reduced to plain text and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.plain import plain_tail, plain_text, without_secrets


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
def test_only_text_is_left(said: object, shown: str) -> None:
    assert plain_text(said, 100) == shown


def test_a_long_text_keeps_its_beginning_and_a_log_its_end() -> None:
    assert plain_text("abcdef", 4) == "abc…"
    assert plain_tail("abcdef", 4) == "…def"
    assert plain_text("abcd", 4) == plain_tail("abcd", 4) == "abcd"


@given(st.text(st.characters(), max_size=300), st.integers(1, 50))
def test_whatever_is_said_can_be_stored_and_sent(said: str, most: int) -> None:
    for shown in (plain_text(said, most), plain_tail(said, most)):
        assert len(shown) <= most
        assert "\x00" not in shown
        assert "\x1b" not in shown
        shown.encode()


def test_secrets_are_hidden_also_where_text_was_made_plain() -> None:
    secrets = ["hunter2", "hunter2-and-more", "with\ttab\n", "abc"]
    said = plain_text('exec: "hunter2-and-more hunter2 with\ttab" abc', 100)
    assert without_secrets(said, secrets) == 'exec: "*** *** ***" abc'
