from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rfb.desktop_filter import MEASURED, DesktopFilter, Encoding
from gateway.core.rfb.filter import MESSAGES_AT_ONCE, RfbError


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big", signed=value < 0)


def pixel_format(bits: int = 32, depth: int = 24) -> bytes:
    return bytes((bits, depth, 0, 1)) + b"\0\xff\0\xff\0\xff" + b"\x10\x08\0" + bytes(3)


def server_init(bits: int = 32, depth: int = 24) -> bytes:
    return number(64, 2) + number(48, 2) + pixel_format(bits, depth) + number(4, 4) + b"desk"


def rect(encoding: int, width: int, height: int, payload: bytes) -> bytes:
    place = number(0, 2) + number(0, 2) + number(width, 2) + number(height, 2)
    return place + number(encoding, 4) + payload


def update(*rects: bytes, count: int | None = None) -> bytes:
    return b"\0\0" + number(len(rects) if count is None else count, 2) + b"".join(rects)


def compact(data: bytes) -> bytes:
    length, out = len(data), bytearray()
    while True:
        piece, length = length & 0x7F, length >> 7
        if len(out) == 2:
            out.append(piece | (length << 7))
            break
        out.append(piece | (0x80 if length else 0))
        if not length:
            break
    return bytes(out) + data


def cut_text(text: bytes, *, extended: bool = False) -> bytes:
    return b"\3\0\0\0" + number(-len(text) if extended else len(text), 4) + text


RECTS: dict[str, bytes] = {
    "raw": rect(Encoding.RAW, 3, 2, bytes(24)),
    "raw, empty": rect(Encoding.RAW, 0, 2, b""),
    "copy": rect(Encoding.COPY_RECT, 3, 2, bytes(4)),
    "zrle": rect(Encoding.ZRLE, 3, 2, number(7, 4) + b"\3\0\0\0\0\0\1"),
    "zlib": rect(Encoding.ZLIB, 3, 2, number(2, 4) + b"\3\3"),
    "tight, fill": rect(Encoding.TIGHT, 9, 9, b"\x80" + b"\3\3\3"),
    "tight, jpeg": rect(Encoding.TIGHT, 9, 9, b"\x90" + compact(b"\3" * 300)),
    "tight, long": rect(Encoding.TIGHT, 9, 9, b"\x90" + compact(b"\3" * 70_000)),
    "tight, short": rect(Encoding.TIGHT, 3, 1, b"\x00" + b"\3" * 9),
    "tight, basic": rect(Encoding.TIGHT, 9, 9, b"\x10" + compact(b"\3" * 20)),
    "tight, two colours": rect(Encoding.TIGHT, 9, 9, b"\x40\1\1" + bytes(6) + compact(b"\3" * 9)),
    "tight, few": rect(Encoding.TIGHT, 8, 2, b"\x40\1\1" + bytes(6) + b"\3\3"),
    "tight, palette": rect(Encoding.TIGHT, 9, 9, b"\x40\1\4" + bytes(15) + compact(b"\3" * 9)),
    "tight, gradient": rect(Encoding.TIGHT, 9, 9, b"\x40\2" + compact(b"\3" * 130)),
    "cursor": rect(Encoding.CURSOR, 9, 2, bytes(72 + 4)),
    "size": rect(Encoding.DESKTOP_SIZE, 9, 2, b""),
    "screens": rect(Encoding.EXTENDED_DESKTOP_SIZE, 9, 2, b"\2\0\0\0" + bytes(32)),
    "name": rect(Encoding.DESKTOP_NAME, 0, 0, number(3, 4) + b"\3\0\0"),
    "led": rect(Encoding.LED_STATE, 0, 0, b"\3"),
    "keys": rect(Encoding.QEMU_KEYS, 0, 0, b""),
}
OTHERS: dict[str, bytes] = {
    "bell": b"\2",
    "colours": b"\1\0" + number(0, 2) + number(2, 2) + bytes(12),
    "fence": b"\xf8\0\0\0" + bytes(4) + b"\3" + b"\3\3\3",
    "end of updates": b"\x96",
    "nothing": update(),
    "until the last": update(RECTS["copy"], rect(Encoding.LAST_RECT, 0, 0, b""), count=0xFFFF),
    **{name: update(one) for name, one in RECTS.items()},
    "all at once": update(*RECTS.values()),
}
SECRET = b"the clipboard's text"


def filtered(pieces: Sequence[bytes]) -> bytes:
    desktop = DesktopFilter()
    passed = bytearray()
    for piece in pieces:
        passed += desktop.feed(piece)
        while desktop.has_more:
            passed += desktop.feed(b"")
    return bytes(passed)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in pairwise(marks)]


@given(
    st.lists(st.sampled_from(sorted(OTHERS)), max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=4),
    st.lists(st.integers(0, 10**6), max_size=12),
)
def test_all_messages_but_clipboard_text_are_forwarded_byte_for_byte(
    names: list[str], cuts: list[tuple[int, bool]], places: list[int]
) -> None:
    messages = [OTHERS[name] for name in names]
    whole = list(messages)
    for at, extended in cuts:
        whole.insert(min(at, len(whole)), cut_text(SECRET, extended=extended))
    stream = server_init() + b"".join(whole)
    passed = filtered(cut(stream, places))
    assert passed == server_init() + b"".join(messages)
    assert SECRET not in passed


@pytest.mark.parametrize(("bits", "depth", "size"), [(8, 8, 1), (16, 16, 2), (32, 24, 4)])
def test_rectangles_are_measured_by_the_negotiated_pixel_format(
    bits: int, depth: int, size: int
) -> None:
    stream = server_init(bits, depth) + update(rect(Encoding.RAW, 3, 2, bytes(6 * size)))
    assert filtered([stream + cut_text(SECRET) + b"\2"]) == stream + b"\2"


def test_a_new_pixel_format_applies_from_the_request_on() -> None:
    desktop = DesktopFilter()
    assert desktop.feed(server_init()) == server_init()
    desktop.use_format(pixel_format(8, 8))
    raw = update(rect(Encoding.RAW, 3, 2, bytes(6)))
    assert desktop.feed(raw + cut_text(SECRET)) == raw


def test_a_pixel_format_requested_before_server_init_applies() -> None:
    desktop = DesktopFilter()
    desktop.use_format(pixel_format(8, 8))
    raw = server_init() + update(rect(Encoding.RAW, 3, 2, bytes(6)))
    assert desktop.feed(raw + cut_text(SECRET)) == raw


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x04", b"\xfa\0\0\0", update(rect(5, 1, 1, b"")), update(rect(-314, 1, 1, b"")),
        update(rect(Encoding.TIGHT, 9, 9, b"\xb0")),
        update(rect(Encoding.TIGHT, 9, 9, b"\x40\7\0")),
        b"\xf8\0\0\0" + bytes(4) + b"\x41",
    ],
)  # fmt: skip
def test_an_unmeasurable_encoding_ends_the_connection(wrong: bytes) -> None:
    with pytest.raises(RfbError):
        filtered([server_init() + wrong])


def test_an_unusual_pixel_size_ends_the_connection() -> None:
    with pytest.raises(RfbError):
        filtered([server_init(24, 24)])


def test_large_input_is_filtered_in_several_steps() -> None:
    desktop = DesktopFilter()
    desktop.feed(server_init())
    passed = desktop.feed(b"\2" * (3 * MESSAGES_AT_ONCE))
    assert desktop.has_more
    assert len(passed) <= MESSAGES_AT_ONCE


def test_announced_encodings_include_no_input_or_clipboard_extension() -> None:
    assert -1063131698 not in MEASURED
    assert set(range(-32, -22)) <= MEASURED
