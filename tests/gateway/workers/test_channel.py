"""Tests the message channel: every split of the bytes gives the same messages, or a refusal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.channel import (
    Down,
    Drain,
    Family,
    Frames,
    Measured,
    Sample,
    SignOut,
    StatusRequest,
    Up,
    WorkerStatus,
    decode_down,
    decode_up,
    encode,
)

FAMILY = Family("n", "t", "counter", (Sample("n_total", {"a": "b"}, 1.0),))
DOWN: list[Down] = [
    StatusRequest(1),
    StatusRequest(2, True, True, "a.example"),
    SignOut("s", "j"),
    Drain(),
]
STATUS = WorkerStatus(
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
UP: list[Up] = [
    STATUS,
    msgspec.structs.replace(STATUS, measured=Measured((FAMILY,), ()), described="{}"),
    SignOut("s", "j"),
]


def test_every_message_round_trips() -> None:
    frames = Frames()
    assert [decode_down(body) for body in frames.feed(b"".join(map(encode, DOWN)))] == DOWN
    assert [decode_up(body) for body in frames.feed(b"".join(map(encode, UP)))] == UP


@given(st.lists(st.integers(1, 4000)))
def test_any_split_of_the_same_bytes_gives_the_same_messages(cuts: list[int]) -> None:
    data, frames, found, at = b"".join(map(encode, DOWN)), Frames(), [], 0
    for cut in [*cuts, len(data)]:
        found += [decode_down(body) for body in frames.feed(data[at : at + cut])]
        at += cut
    assert found == DOWN


def test_an_impossible_length_is_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        list(Frames().feed(b"\xff\xff\xff\xff"))


def test_a_message_of_the_other_direction_or_a_part_of_one_is_refused() -> None:
    for down in DOWN[:2]:
        (body,) = Frames().feed(encode(down))
        for decode, given_body in ((decode_up, body), (decode_down, body[:-1])):
            with pytest.raises(msgspec.DecodeError):
                decode(given_body)
    for up in UP[:2]:
        (body,) = Frames().feed(encode(up))
        for decode, given_body in ((decode_down, body), (decode_up, body[:-1])):
            with pytest.raises(msgspec.DecodeError):
                decode(given_body)
