"""Messages: every split of the same bytes gives the same messages, and none is misread."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.bus_state import Marks
from gateway.workers import messages as m
from shared.events import Head
from shared.routes import Ended, Entry, RouteReader
from shared.statuses import Status
from tests.gateway.bus.following import encode, make_route, sid_of

HEAD = Head(epoch="e", seq=3, term=1, routes=1, revoked=0, since=1.5)
STATUS = Status(phase="ready", app="Lab", times=(("queued", 1.0),))
ROUTE = RouteReader().read(
    sid_of(1), encode(make_route(sid_of(1)) | {"status": msgspec.to_builtins(STATUS)}), epoch="e"
)
ENTRY = Entry(ROUTE, 2**64 - 1)
DOWN: list[m.Down] = [
    m.Begins(HEAD, True),
    m.Revocations({"jti:x": 1.25}),
    m.Routes(((sid_of(1), ENTRY), (sid_of(2), None), (sid_of(3), Entry(None, 5, "unreadable")))),
    m.Ends(2**64 - 1),
    m.Put(4, 1.5, sid_of(1), ENTRY),
    m.Drop(5, None, sid_of(1)),
    m.Drop(5, None, sid_of(1), Ended("j1", "vnc", STATUS)),
    m.Revoked(6, 2.5, None, "kid:k", 7.5),
    m.Passed(7, None),
    m.Bus(Marks(1.0, 2.0, None, 3.0)),
    m.Look(1, "e", 7, 2**64 - 1),
    m.Measure(1),
    m.Repaired(1),
    m.Accept(),
    m.Drain(),
]
UP: list[m.Up] = [
    m.Standing(1, "e", 7, 2**64 - 1, 0.5, 3, True, ("a reason",)),
    m.Strayed(),
    m.Repair(2, 0.5),
    m.Measured(1, (m.Family("n", "t", "counter", (m.Sample("n_total", {"a": "b"}, 1.0),)),)),
]


def test_every_message_crosses_unchanged() -> None:
    frames = m.Frames()
    assert [m.decode_down(body) for body in frames.feed(b"".join(map(m.encode, DOWN)))] == DOWN
    assert [m.decode_up(body) for body in frames.feed(b"".join(map(m.encode, UP)))] == UP


@given(st.lists(st.integers(1, 4000)))
def test_any_split_of_the_same_bytes_gives_the_same_messages(cuts: list[int]) -> None:
    data, frames, found, at = b"".join(map(m.encode, DOWN)), m.Frames(), [], 0
    for cut in [*cuts, len(data)]:
        found += [m.decode_down(body) for body in frames.feed(data[at : at + cut])]
        at += cut
    assert found == DOWN


def test_a_length_that_cannot_be_true_is_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        list(m.Frames().feed(b"\xff\xff\xff\xff"))


@given(st.binary(max_size=64))
def test_what_is_no_message_is_refused_and_not_misread(body: bytes) -> None:
    for decode in (m.decode_down, m.decode_up):
        try:
            decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
