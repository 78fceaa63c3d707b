from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.hub.clipboard import ClipboardGuard

COPIES = [
    b"\x1b]52;c;cm0K\x07",
    b"\x1b]52;;cm0K\x1b\\",
    b"\x1b]052;p;?\x07",
    b"\xc2\x9d52;c;QQ==\xc2\x9c",
    b"\x1b]" + b"0" * 100 + b"52;c;QQ==\x07",
    b"\x1b]52;c;" + b"QUFB" * 5000 + b"\x07",
    b"\x1b]52;c;broken\x18",
    b"\x1b]52;c;broken\x1a",
    # Terminals ignore control characters in the number, and a number of 32 bits wraps.
    b"\x1b]5\x1c2;c;cm0K\x07",
    b"\x1b]\x0052;c;cm0K\x07",
    b"\xc2\x9d052\x7f;c;cm0K\x07",
    b"\x1b]4294967348;c;cm0K\x07",
]
SHOWN = [
    b"text ",
    b"\x1b]0;title\x07",
    b"\x1b]5;1\x07",
    b"\x1b]520;x\x07",
    b"\x1b[31m",
    "é…".encode(),
    b"\x1b]8;;x\x1b\\",
    b"\x1bc",
    b"52;c;",
]


@given(st.lists(st.sampled_from(COPIES + SHOWN)), st.lists(st.integers(0, 200), max_size=200))
def test_all_output_but_clipboard_sequences_is_forwarded_in_any_split(
    parts: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join([*parts, b"end"])
    guard, shown, at = ClipboardGuard(), b"", 0
    for size in [*cuts, len(whole)]:
        shown += guard.feed(whole[at : at + size])
        at += size
    assert shown == b"".join([*(part for part in parts if part in SHOWN), b"end"])


@pytest.mark.parametrize("controls", [b"\n", b"\x07\r\x7f", b"\x00" * 100])
@given(st.lists(st.integers(0, 20), max_size=20))
def test_control_characters_after_escape_hide_no_sequence(controls: bytes, cuts: list[int]) -> None:
    whole = b"\x1b" + controls + b"]52;c;cm0K\x07end"
    guard, shown, at = ClipboardGuard(), b"", 0
    for size in [*cuts, len(whole)]:
        shown += guard.feed(whole[at : at + size])
        at += size
    assert shown == controls + b"end", "terminals execute the controls, and go on with the sequence"


@pytest.mark.parametrize("tail", [b"\x1b", b"\x1b]", b"\x1b]5", b"\xc2"])
def test_little_output_is_buffered(tail: bytes) -> None:
    guard = ClipboardGuard()
    assert guard.feed(b"$ " + tail) == b"$ "
    assert guard.feed(b"!") == tail + b"!"


def test_an_interrupted_sequence_removes_only_itself() -> None:
    assert ClipboardGuard().feed(b"\x1b]52;c;QQ\x1b[31mred") == b"\x1b[31mred"
