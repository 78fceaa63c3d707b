"""User input in a desktop, as opposed to messages that browsers send by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rfb.browser_filter import has_human_input

KEY = bytes.fromhex("0401000000000061")
POINTER = bytes.fromhex("050100100010")
CUT = b"\x06\x00\x00\x00\x00\x00\x00\x01x"
UPDATE = bytes.fromhex("03010000000002800 1e0".replace(" ", ""))
FORMAT = bytes(20)
NEWS = b"\x06\0\0\0" + (-4).to_bytes(4, "big", signed=True) + b"\x08\0\0\1"
ASKED = b"\x06\0\0\0" + (-4).to_bytes(4, "big", signed=True) + b"\x02\0\0\1"
FENCE = b"\xf8" + bytes(7) + b"\2\4\5"
ENCODINGS = b"\x02\x00\x00\x03" + bytes(12)


@pytest.mark.parametrize(
    "data",
    [
        KEY, POINTER, CUT, NEWS, UPDATE + KEY, FORMAT + ENCODINGS + POINTER, FENCE + KEY,
        ASKED + KEY,
    ],
)  # fmt: skip
def test_keys_pointer_and_clipboard_count_as_user_input(data: bytes) -> None:
    assert has_human_input(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", UPDATE, UPDATE * 3, FORMAT + ENCODINGS + UPDATE, b"RFB 003", FENCE, ASKED + FENCE,
        FENCE[:8], ASKED[:7],
    ],
)  # fmt: skip
def test_automatic_messages_do_not_count_as_user_input(data: bytes) -> None:
    assert not has_human_input(data)


@given(
    st.lists(st.sampled_from([UPDATE, FENCE, ASKED, FORMAT, ENCODINGS]), max_size=15),
    st.sampled_from([KEY, POINTER, CUT, NEWS]),
    st.binary(max_size=200),
)
def test_user_input_is_found_between_any_other_messages(
    before: list[bytes], event: bytes, after: bytes
) -> None:
    data = b"".join(before)
    assert not has_human_input(data)
    assert has_human_input(data + event + after)
