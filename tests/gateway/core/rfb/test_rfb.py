"""RFB as a bridge parses it: in any split, strictly, and without input from viewers."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rfb.browser_filter import INPUT_ENCODINGS, BrowserFilter
from gateway.core.rfb.filter import RfbError
from gateway.core.rfb.handshake import Handshake, Side, answer_challenge

OK = bytes(4)
CHALLENGE = bytes(range(16))


def test_a_challenge_is_answered_by_des_with_every_bytes_bits_mirrored() -> None:
    # Published vectors of DES: zeros under the zero key, and under 8001010101010101, of which
    # the low bits are parity and do not count. Mirrored, 01 is 80.
    assert answer_challenge("", bytes(8)) == bytes.fromhex("8ca64de9c1b123a7")
    assert answer_challenge("\x01", bytes(8)) == bytes.fromhex("95a8d72813daa94d")


def test_only_the_first_eight_characters_of_a_password_are_used() -> None:
    assert answer_challenge("12345678", CHALLENGE) == answer_challenge("123456789", CHALLENGE)


class Talk:
    """A handshake, and the bytes that it sent."""

    def __init__(self, *, password: str | None = None, shared: bool = False) -> None:
        self.handshake = Handshake(password=password, shared=shared)
        self.browser = b""
        self.desktop = b""

    def feed(self, side: Side, data: bytes, *, split: int = 0) -> None:
        pieces = [data[:split], data[split:]] if split else [data]
        for piece in pieces:
            try:
                self.handshake.feed(side, piece)
            finally:
                self.browser += bytes(self.handshake.to_browser)
                self.desktop += bytes(self.handshake.to_desktop)
                self.handshake.to_browser.clear()
                self.handshake.to_desktop.clear()

    def desktop_says(self, data: bytes) -> None:
        self.feed(Side.DESKTOP, data)

    def browser_says(self, data: bytes) -> None:
        self.feed(Side.BROWSER, data)


def test_a_known_password_is_sent_without_asking_the_browser() -> None:
    talk = Talk(password="secret")
    talk.desktop_says(b"RFB 003.008\n")
    talk.desktop_says(b"\x02\x02\x10")
    assert talk.desktop == b"RFB 003.008\n\x02"
    assert talk.browser == b"RFB 003.008\n"
    talk.browser_says(b"RFB 003.008\n")
    talk.browser_says(b"\x01")
    talk.desktop_says(CHALLENGE)
    assert talk.desktop.endswith(answer_challenge("secret", CHALLENGE))
    talk.desktop_says(OK)
    assert talk.browser == b"RFB 003.008\n\x01\x01" + OK
    talk.browser_says(b"\x00")
    assert talk.handshake.done
    assert talk.desktop.endswith(b"\x00")
    assert b"secret" not in talk.browser


def test_an_unknown_password_is_requested_from_the_browser() -> None:
    talk = Talk()
    talk.desktop_says(b"RFB 003.008\n\x01\x02" + CHALLENGE)
    talk.browser_says(b"RFB 003.008\n\x02")
    assert talk.browser.endswith(b"\x01\x02" + CHALLENGE)
    talk.browser_says(b"r" * 16)
    assert talk.desktop.endswith(b"r" * 16)
    talk.desktop_says(OK)
    assert talk.browser.endswith(OK)


@pytest.mark.parametrize("version", [b"RFB 003.003\n", b"RFB 003.005\n"])
def test_an_old_desktop_decides_the_security_and_gives_no_result(version: bytes) -> None:
    talk = Talk()
    talk.desktop_says(version + b"\0\0\0\1")
    talk.browser_says(b"RFB 003.008\n\x01")
    talk.browser_says(b"\x01")
    assert talk.handshake.done
    assert talk.desktop == b"RFB 003.003\n\x01"
    assert talk.browser == b"RFB 003.008\n\x01\x01" + OK


def test_a_desktop_of_3_7_gives_no_result_without_authentication() -> None:
    talk = Talk()
    talk.desktop_says(b"RFB 003.007\n\x01\x01")
    talk.browser_says(b"RFB 003.008\n\x01\x01")
    assert talk.handshake.done


def test_an_rfb_3_3_browser_receives_the_security_type() -> None:
    talk = Talk(password="x")
    talk.desktop_says(b"RFB 003.008\n\x01\x02" + CHALLENGE + OK)
    talk.browser_says(b"RFB 003.003\n\x01")
    assert talk.handshake.done
    assert talk.browser == b"RFB 003.008\n\0\0\0\1"


@pytest.mark.parametrize("version", [b"RFB 003.889\n", b"RFB 004.001\n", b"RFB 005.000\n"])
def test_a_newer_desktop_is_addressed_as_rfb_3_8(version: bytes) -> None:
    talk = Talk()
    talk.desktop_says(version)
    assert talk.desktop == b"RFB 003.008\n"


def test_a_viewer_requests_a_shared_desktop() -> None:
    talk = Talk(shared=True)
    talk.desktop_says(b"RFB 003.008\n\x01\x01" + OK)
    talk.browser_says(b"RFB 003.008\n\x01\x00")
    assert talk.desktop.endswith(b"\x01")
    assert talk.handshake.done


def test_bytes_after_the_handshake_are_kept() -> None:
    talk = Talk()
    talk.desktop_says(b"RFB 003.008\n\x01\x01" + OK + b"early")
    talk.browser_says(b"RFB 003.008\n\x01\x01beyond")
    assert talk.handshake.rest(Side.BROWSER) == b"beyond"
    assert talk.handshake.rest(Side.DESKTOP) == b"early"
    assert talk.handshake.rest(Side.DESKTOP) == b""


@pytest.mark.parametrize(
    ("side", "data"),
    [
        (Side.DESKTOP, b"HTTP/1.1 400"),
        (Side.DESKTOP, b"RFB 002.000\n"),
        (Side.DESKTOP, b"RFB 003.008 "),
        (Side.DESKTOP, b"RFB 003.008\n\x01\x13"),
        (Side.DESKTOP, b"RFB 003.008\n\x00\0\0\0\2no"),
        (Side.DESKTOP, b"RFB 003.008\n\x00\xff\xff\xff\xff"),
        (Side.DESKTOP, b"RFB 003.003\n\0\0\0\x11"),
    ],
)
def test_a_desktop_with_unsupported_security_ends_the_connection(side: Side, data: bytes) -> None:
    with pytest.raises(RfbError):
        Talk().feed(side, data)


def test_a_browser_that_chooses_an_unoffered_security_type_ends_the_connection() -> None:
    talk = Talk(password="x")
    talk.desktop_says(b"RFB 003.008\n\x01\x02")
    with pytest.raises(RfbError):
        talk.browser_says(b"RFB 003.008\n\x02")


def test_a_wrong_password_is_reported_by_an_rfb_security_result() -> None:
    talk = Talk(password="x")
    talk.desktop_says(b"RFB 003.008\n\x01\x02" + CHALLENGE)
    talk.browser_says(b"RFB 003.008\n\x01")
    with pytest.raises(RfbError):
        talk.desktop_says(b"\0\0\0\1")
    assert b"not the desktop's" in talk.browser
    talk = Talk()
    talk.desktop_says(b"RFB 003.008\n\x01\x02" + CHALLENGE)
    talk.browser_says(b"RFB 003.008\n\x02" + bytes(16))
    with pytest.raises(RfbError):
        talk.desktop_says(b"\0\0\0\1")
    assert b"did not accept the password" in talk.browser


@pytest.mark.parametrize("reason", [b"", b"Too many security failures"])
def test_a_desktops_refusal_reason_is_forwarded_to_the_browser(reason: bytes) -> None:
    talk = Talk()
    counted = len(reason).to_bytes(4, "big") + reason
    with pytest.raises(RfbError):
        talk.desktop_says(b"RFB 003.008\n\x00" + counted)
    assert talk.browser == b"RFB 003.008\n\x00" + counted


@pytest.mark.parametrize("side", list(Side))
def test_input_ahead_of_the_handshake_is_bounded(side: Side) -> None:
    """The other side may not continue for minutes, and its user for hours."""
    talk = Talk()
    talk.desktop_says(b"RFB 003.008\n\x01\x02")
    talk.browser_says(b"RFB 003.008\n")
    talk.desktop_says(CHALLENGE)
    with pytest.raises(RfbError):
        talk.feed(side, b"\x02" + bytes(1 << 17), split=1 << 16)


def test_any_number_of_bytes_may_follow_the_end_of_the_handshake() -> None:
    talk = Talk()
    talk.desktop_says(b"RFB 003.008\n\x01\x01" + OK)
    talk.browser_says(b"RFB 003.008\n\x01\x01" + bytes(1 << 18))
    assert talk.handshake.done
    assert len(talk.handshake.rest(Side.BROWSER)) == 1 << 18


def test_a_password_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Handshake(password="hunter2", shared=False))


# Looking on

SET_PIXEL_FORMAT = bytes(20)
UPDATE = b"\x03" + bytes(9)
KEY = struct.pack(">BBHI", 4, 1, 0, 0x61)
POINTER = struct.pack(">BBHH", 5, 1, 10, 10)
CUT_TEXT = struct.pack(">BxxxI", 6, 5) + b"hello"
EXTENDED_CUT = struct.pack(">BxxxiI", 6, -8, 1 << 28 | 1) + b"5678"
CONTINUOUS = b"\x96" + bytes(9)
FENCE = b"\xf8" + bytes(7) + b"\x03abc"
XVP = b"\xfa\x00\x01\x02"
RESIZE = struct.pack(">BxHHBx", 251, 800, 600, 1) + bytes(16)
QEMU_KEY = b"\xff\x00" + bytes(10)
QEMU_AUDIO = b"\xff\x01\x00\x00"
QEMU_FORMAT = b"\xff\x01\x00\x02" + bytes(6)


def encodings(*numbers: int) -> bytes:
    return struct.pack(f">BxH{len(numbers)}i", 2, len(numbers), *numbers)


PASSES = [SET_PIXEL_FORMAT, UPDATE, CONTINUOUS, FENCE, encodings(0, 1, 16, -239)]
DROPPED = [KEY, POINTER, CUT_TEXT, EXTENDED_CUT, XVP, RESIZE, QEMU_KEY, QEMU_AUDIO, QEMU_FORMAT]


@pytest.mark.parametrize("message", PASSES)
def test_view_messages_are_forwarded(message: bytes) -> None:
    assert BrowserFilter().feed(message) == message


@pytest.mark.parametrize("message", DROPPED)
def test_input_messages_are_dropped_and_later_messages_parsed_correctly(message: bytes) -> None:
    assert BrowserFilter().feed(message + UPDATE) == UPDATE


def test_a_viewer_announces_no_extended_input_encoding() -> None:
    passed = BrowserFilter().feed(encodings(0, -316, 16, -258, -1063131698))
    assert passed == encodings(0, 16)
    assert {-316, -258, -1063131698} <= INPUT_ENCODINGS


INPUT = [KEY, POINTER, XVP, RESIZE, QEMU_KEY]


@pytest.mark.parametrize("may_copy", [True, False])
@pytest.mark.parametrize("may_paste", [True, False])
def test_a_restricted_clipboard_leaves_all_other_input_alone(
    may_paste: bool, may_copy: bool
) -> None:
    browser = BrowserFilter(may_control=True, may_paste=may_paste, may_copy=may_copy)
    passed = browser.feed(b"".join([CUT_TEXT, *INPUT, EXTENDED_CUT, UPDATE]))
    cut = (CUT_TEXT, EXTENDED_CUT) if may_paste else (b"", b"")
    assert passed == b"".join([cut[0], *INPUT, cut[1], UPDATE])
    announced = browser.feed(encodings(0, -316, 16, -258, -308, -305, -1063131698, 5, 21))
    extended = (-1063131698,) if may_paste or may_copy else ()
    assert announced == encodings(0, 16, -258, -308, *extended, 5, 21)


def test_with_clipboard_filtering_only_measurable_encodings_are_announced() -> None:
    formats: list[bytes] = []
    browser = BrowserFilter(may_control=True, may_paste=True, use_format=formats.append)
    offered = encodings(7, 16, 1, 0, 5, 21, -314, -239, -224, -223, -308, -26, -250, -1063131698)
    kept = (7, 16, 1, 0, -239, -224, -223, -308, -26, -250, -1063131698)
    assert browser.feed(offered) == encodings(*kept)
    other = b"\0\0\0\0" + b"x" * 16
    assert browser.feed(other + UPDATE + other + KEY) == other + UPDATE + KEY
    assert formats == [b"x" * 16]


@pytest.mark.parametrize("kind", [1, 7, 100, 149, 151, 249, 252, 253, 254])
def test_an_unknown_message_ends_the_connection(kind: int) -> None:
    with pytest.raises(RfbError):
        BrowserFilter().feed(bytes((kind,)) + bytes(20))


def test_an_unknown_qemu_message_or_a_long_fence_ends_the_connection() -> None:
    for message in (b"\xff\x02\x00\x00", b"\xff\x01\x00\x03", b"\xf8" + bytes(7) + b"\x41"):
        with pytest.raises(RfbError):
            BrowserFilter().feed(message)


def test_a_huge_clipboard_text_is_dropped_unbuffered() -> None:
    views = BrowserFilter()
    assert views.feed(struct.pack(">BxxxI", 6, (1 << 31) - 1)) == b""
    for _ in range(100):
        assert views.feed(bytes(65536)) == b""
    assert len(views._unread) == 0


@given(st.lists(st.sampled_from(PASSES + DROPPED)), st.data())
def test_any_split_of_the_same_bytes_is_filtered_alike(
    messages: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(messages)
    views, passed, at = BrowserFilter(), b"", 0
    while at < len(whole):
        size = data.draw(st.integers(1, len(whole) - at))
        passed += views.feed(whole[at : at + size])
        at += size
    assert passed == b"".join(message for message in messages if message in PASSES)


SIZES = {0: 20, 3: 10, 150: 10}


def only_looks(data: bytes) -> bool:
    """Return whether *data* is whole messages that change nothing, parsed without our code."""
    while data:
        if data[0] in SIZES:
            size = SIZES[data[0]]
        elif data[0] == 2:
            size = 4 + 4 * int.from_bytes(data[2:4], "big")
            announced = struct.iter_unpack(">i", data[4:size])
            if INPUT_ENCODINGS & {number for (number,) in announced}:
                return False
        elif data[0] == 248:
            size = 9 + data[8]
        else:
            return False
        if len(data) < size:
            return False
        data = data[size:]
    return True


@given(st.lists(st.one_of(st.sampled_from(PASSES + DROPPED), st.binary(max_size=40)), max_size=12))
def test_no_bytes_of_a_viewer_reach_the_desktop_as_input(pieces: list[bytes]) -> None:
    views, passed = BrowserFilter(), b""
    with suppress(RfbError):
        for piece in pieces:
            passed += views.feed(piece)
    assert only_looks(passed)


@given(st.integers(1, 45), st.integers(1, 14))
def test_any_split_of_a_handshake_gives_the_same_result(desktop: int, browser: int) -> None:
    talk = Talk(password="secret")
    talk.feed(Side.DESKTOP, b"RFB 003.008\n\x01\x02" + CHALLENGE + OK + b"beyond", split=desktop)
    talk.feed(Side.BROWSER, b"RFB 003.008\n\x01\x01", split=browser)
    assert talk.handshake.done
    assert talk.browser == b"RFB 003.008\n\x01\x01" + OK
    assert talk.handshake.rest(Side.DESKTOP) == b"beyond"


def test_a_long_allowed_text_is_streamed() -> None:
    """Its length can be 2 GiB, so it is not collected."""
    filter_ = BrowserFilter(may_control=True, may_paste=True)
    head = b"\x06\0\0\0" + (1 << 30).to_bytes(4, "big")
    assert filter_.feed(head + b"a") == head + b"a"
    for _ in range(100):
        assert filter_.feed(bytes(65536)) == bytes(65536)
    assert not filter_._unread
