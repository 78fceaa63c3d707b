"""Messages: every split of the same bytes gives the same messages, and none is misread."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.channel import (
    Down,
    Drain,
    Family,
    Frames,
    Look,
    Measured,
    Sample,
    Shares,
    SignOut,
    Standing,
    Up,
    decode_down,
    decode_up,
    encode,
)
from tests.gateway.process import ROOT

FAMILY = Family("n", "t", "counter", (Sample("n_total", {"a": "b"}, 1.0),))
DOWN: list[Down] = [
    Look(1),
    Look(2, True, True, "a.example"),
    SignOut("s", "j"),
    Drain(),
]
STANDING = Standing(
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
    STANDING,
    msgspec.structs.replace(STANDING, measured=Measured((FAMILY,), ()), described="{}"),
    SignOut("s", "j"),
]


def test_every_message_crosses_unchanged() -> None:
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


def test_a_length_that_cannot_be_true_is_refused() -> None:
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


def test_who_is_alone_takes_all() -> None:
    shares = Shares(3)
    shares.set(0, 1_000_000)
    assert not shares.is_over(0)


def test_few_more_than_the_mean_are_no_reason_to_hold_back() -> None:
    shares = Shares(2)
    shares.set(0, 8)
    shares.set(1, 0)
    assert not shares.is_over(0)
    shares.set(0, 30)
    assert shares.is_over(0)
    assert not shares.is_over(1)


def test_who_has_left_does_not_count() -> None:
    shares = Shares(2)
    shares.set(0, 500)
    shares.set(1, 0)
    assert shares.is_over(0)
    shares.leave(1)
    assert not shares.is_over(0)


def test_all_processes_see_the_same() -> None:
    # Not forked here, where a test's threads may run.
    script = """
        import os
        from gateway.workers.channel import Shares
        shares = Shares(2)
        shares.set(0, 100)
        if not os.fork():
            shares.set(1, 7)
            os._exit(0)
        os.wait()
        assert shares.is_over(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, check=True)
