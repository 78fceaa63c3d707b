"""Messages: every split of the same bytes gives the same messages, and none is misread."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers import messages as m

FAMILY = m.Family("n", "t", "counter", (m.Sample("n_total", {"a": "b"}, 1.0),))
DOWN: list[m.Down] = [
    m.Look(1),
    m.Look(2, True, True, "a.example"),
    m.SignOut("s", "j"),
    m.Drain(),
]
STANDING = m.Standing(
    number=1,
    epoch="e",
    seq=7,
    hash=2**64 - 1,
    rank=(2, 1, 0, 7),
    lag_seconds=0.5,
    open=3,
    accepting=True,
    reasons=("a reason",),
)
UP: list[m.Up] = [
    STANDING,
    msgspec.structs.replace(STANDING, measured=m.Measured((FAMILY,), ()), described="{}"),
    m.SignOut("s", "j"),
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


def test_a_message_of_the_other_direction_or_a_part_of_one_is_refused() -> None:
    for down in DOWN[:2]:
        (body,) = m.Frames().feed(m.encode(down))
        for decode, given_body in ((m.decode_up, body), (m.decode_down, body[:-1])):
            with pytest.raises(msgspec.DecodeError):
                decode(given_body)
    for up in UP[:2]:
        (body,) = m.Frames().feed(m.encode(up))
        for decode, given_body in ((m.decode_down, body), (m.decode_up, body[:-1])):
            with pytest.raises(msgspec.DecodeError):
                decode(given_body)
