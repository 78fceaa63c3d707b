"""Checks the promises for WebSocket frames, and for desktops' handshakes and messages."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

from gateway.core.fragments import FRAGMENT_BYTES, Fragmenter
from gateway.core.frames import FrameTracker
from gateway.core.rfb.browser_filter import BrowserFilter
from gateway.core.rfb.desktop_filter import DesktopFilter
from gateway.core.rfb.filter import RfbError
from gateway.core.rfb.handshake import Handshake, Side
from tests.fuzz.mutation import cut
from tests.fuzz.reading import (
    viewer_messages,
)

_LARGEST = 250_000

# WebSocket frames


def _ends(data: bytes) -> list[int] | None:
    """Return where frames end in *data*, up to the first incomplete one (RFC 6455, 5.2)."""
    ends, at = [0], 0
    while at + 2 <= len(data):
        size, header = data[at + 1] & 0x7F, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            if at + 2 + wide > len(data):
                return ends
            size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
            header += wide
        at += header + (4 if data[at + 1] & 0x80 else 0) + size
        ends.append(at)
    return ends


def check_frames(data: bytes) -> Hashable:
    """A boundary is where a frame ends, and nowhere else, whatever the split."""
    ends = set(_ends(data) or [0])
    tracker, at = FrameTracker(), 0
    for piece in cut(data):
        tracker.feed(piece)
        at += len(piece)
        assert tracker.at_boundary == (at in ends), (at, ends)
    finisher = FrameTracker()
    middle = len(data) // 2
    finisher.feed(data[:middle])
    taken = finisher.feed_to_boundary(data[middle:])
    later = [end for end in ends if end >= middle]
    assert taken == (min(later) if later else len(data)) - middle or min(later) > len(data)
    return len(ends), tracker.at_boundary, min(tracker.remaining, 2)


def check_fragments(data: bytes) -> Hashable:
    """Fragments hold the same bytes as the frames, whatever the split; a large frame needs none.

    Lengths are multiplied, so that a few bytes of input make frames of several fragments.
    """
    stream, at = b"", 0
    while at + 4 <= len(data):
        first, second, size = data[at], data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        mask = b"mask" if second & 0x80 else b""
        header = bytes((first, 127 | second & 0x80)) + (5 * size).to_bytes(8, "big") + mask
        stream += header + (data[at : at + 1] * (5 * size))
        at += 4
    stream = stream[: len(stream) - len(data) % 4]
    whole, split = Fragmenter(_LARGEST), Fragmenter(_LARGEST)
    out = whole.feed(stream)
    assert b"".join(map(split.feed, cut(stream))) == out
    assert split.at_boundary == whole.at_boundary == (len(stream) == (_ends(stream) or [0])[-1])
    assert len(out) - len(stream) <= 14 * (len(stream) // FRAGMENT_BYTES + 1)
    ends = [*(_ends(out) or [0]), len(out)]
    sizes = [end - begin for begin, end in itertools.pairwise(ends)]
    assert all(size <= FRAGMENT_BYTES + 14 or size > _LARGEST for size in sizes), sizes
    return len(ends), whole.at_boundary


# RFB


def _viewed(pieces: list[bytes]) -> bytes | str:
    views, passed = BrowserFilter(), b""
    try:
        for piece in pieces:
            passed += views.feed(piece)
    except RfbError as error:
        return str(error)
    return passed


def check_view(data: bytes) -> Hashable:
    """A viewer's input never passes, whatever the split; passed data passes again unchanged."""
    whole, split = _viewed([data]), _viewed(cut(data))
    if isinstance(whole, str) or isinstance(split, str):
        assert isinstance(whole, str), (whole, split)
        assert isinstance(split, str), (whole, split)
        return whole
    assert whole == split
    messages = viewer_messages(whole)
    assert _viewed([whole]) == whole
    return tuple(message[0] for message in messages[:6])


def _unshared(pieces: list[bytes]) -> bytes | str:
    desktop, passed = DesktopFilter(), b""
    try:
        for piece in pieces:
            passed += desktop.feed(piece)
            while desktop.has_more:
                passed += desktop.feed(b"")
    except RfbError as error:
        return str(error)
    return passed


def check_desktop(data: bytes) -> Hashable:
    """The dropped data does not depend on the split, and the result has nothing more to drop."""
    whole, split = _unshared([data]), _unshared(cut(data))
    assert whole == split, (whole, split)
    if isinstance(whole, str):
        return whole
    assert _unshared([whole]) == whole
    return len(data) - len(whole), whole[28:29], min(len(whole), 64)


def _shaken(data: bytes, password: str | None, *, in_pieces: bool) -> Hashable:
    """Feed each piece to one side; the piece's first byte selects the side."""
    handshake = Handshake(password=password, shared=True)
    sent = {Side.BROWSER: b"", Side.DESKTOP: b""}
    verdict = "open"
    try:
        for piece in data.split(b"\xff"):
            side = Side.DESKTOP if piece[:1] < b"b" else Side.BROWSER
            for part in cut(piece[1:]) if in_pieces else [piece[1:]]:
                handshake.feed(side, part)
    except RfbError as error:
        verdict = str(error)
    sent[Side.BROWSER], sent[Side.DESKTOP] = (
        bytes(handshake.to_browser),
        bytes(handshake.to_desktop),
    )
    return verdict, handshake.done, sent[Side.BROWSER], sent[Side.DESKTOP]


def check_handshake(data: bytes) -> Hashable:
    """Every split gives the same result, and neither side receives the password in plain text."""
    verdicts = []
    for password in (None, "h0tl4va"):
        whole = _shaken(data, password, in_pieces=False)
        assert _shaken(data, password, in_pieces=True) == whole
        assert isinstance(whole, tuple)
        assert all(b"h0tl4va" not in side for side in whole[2:])
        verdicts.append((whole[0], whole[1], len(whole[2])))
    return tuple(verdicts)
