"""What a person does in a desktop, told from what browsers send by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rfb.human_input import has_human_input

KEY = bytes.fromhex("0401000000000061")
POINTER = bytes.fromhex("050100100010")
CUT = b"\x06\x00\x00\x00\x00\x00\x00\x01x"
UPDATE = bytes.fromhex("03010000000002800 1e0".replace(" ", ""))
FORMAT = bytes(20)
ENCODINGS = b"\x02\x00\x00\x03" + bytes(12)


@pytest.mark.parametrize("data", [KEY, POINTER, CUT, UPDATE + KEY, FORMAT + ENCODINGS + POINTER])
def test_keys_pointers_and_clipboard_are_a_persons(data: bytes) -> None:
    assert has_human_input(data)


@pytest.mark.parametrize("data", [b"", UPDATE, UPDATE * 3, FORMAT + ENCODINGS + UPDATE, b"RFB 003"])
def test_what_a_browser_sends_by_itself_is_not(data: bytes) -> None:
    assert not has_human_input(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(data: bytes) -> None:
    has_human_input(data)
