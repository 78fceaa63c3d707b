"""Clipboard texts, plain and extended, pass only in the allowed direction."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rfb.filter import Action, CutTextPolicy, CutTextVerdict
from tests.gateway.core.rfb.test_desktop_filter import SECRET

TEXT = 1
SAYS = CutTextPolicy(may_send=True)
ASKS = CutTextPolicy(may_request=True)
BOTH = CutTextPolicy(may_send=True, may_request=True)
NEITHER = CutTextPolicy()
PLAIN = struct.pack(">BxxxI", 6, 5) + b"hello"


def extended(flags: int, body: bytes = b"") -> bytes:
    """Return a message of the extended clipboard."""
    return struct.pack(">BxxxiI", 6, -4 - len(body), flags) + body


CAPABILITIES = extended(0x1F000003, struct.pack(">II", 1 << 20, 1 << 20))
TEXT_ITSELF = zlib.compress(struct.pack(">I", len(SECRET)) + SECRET)
ALL = {
    "request": extended(Action.REQUEST | TEXT),
    "peek": extended(Action.PEEK),
    "notify": extended(Action.NOTIFY | TEXT),
    "provide": extended(Action.PROVIDE | TEXT, TEXT_ITSELF),
}


def passes(policy: CutTextPolicy, message: bytes) -> bool:
    """Return whether *message* passes whole; otherwise it is dropped whole."""
    judged = policy.judge(message)
    assert judged in (CutTextVerdict(forwarded=len(message)), CutTextVerdict(dropped=len(message)))
    return bool(judged.forwarded)


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        (SAYS, {"notify", "provide"}),
        (ASKS, {"request", "peek"}),
        (BOTH, set(ALL)),
        (NEITHER, set()),
    ],
)
def test_text_is_forwarded_only_in_allowed_directions(policy: CutTextPolicy, may: set[str]) -> None:
    assert {name for name, message in ALL.items() if passes(policy, message)} == may
    assert passes(policy, PLAIN) is policy.may_send


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        (SAYS, Action.REQUEST | Action.PEEK),
        (ASKS, Action.NOTIFY | Action.PROVIDE),
        (BOTH, Action.REQUEST | Action.PEEK | Action.NOTIFY | Action.PROVIDE),
    ],
)
def test_capabilities_are_rewritten_without_forbidden_actions(
    policy: CutTextPolicy, actions: int
) -> None:
    judged = policy.judge(CAPABILITIES)
    assert judged is not None
    assert judged.replacement == extended(Action.CAPABILITIES | actions | TEXT, bytes(4))
    assert judged.dropped == len(CAPABILITIES)


def test_no_text_passes_within_a_capabilities_message() -> None:
    """Some servers check other flags first and would take the sizes for a text."""
    hidden = extended(Action.CAPABILITIES | Action.PROVIDE | TEXT, TEXT_ITSELF)
    for policy in (SAYS, ASKS, BOTH):
        judged = policy.judge(hidden)
        assert judged is not None
        assert judged.forwarded == 0
        assert judged.replacement.endswith(bytes(4))
        assert len(judged.replacement) == 16


@pytest.mark.parametrize(
    "message",
    [
        extended(Action.NOTIFY | Action.PROVIDE | TEXT, TEXT_ITSELF),
        extended(Action.REQUEST | Action.NOTIFY),
        extended(0),
        extended(1 << 31 | TEXT),
        struct.pack(">Bxxxi", 6, -3) + b"abc",
    ],
)
def test_an_ambiguous_action_is_dropped(message: bytes) -> None:
    for policy in (SAYS, ASKS, BOTH, NEITHER):
        assert not passes(policy, message)


@pytest.mark.parametrize(
    "flags", [Action.REQUEST | TEXT, Action.PEEK, Action.NOTIFY | TEXT, Action.PROVIDE]
)
def test_a_message_is_not_smuggled_behind_its_flags(flags: int) -> None:
    """noVNC and TigerVNC would take the bytes after the flags for the next message."""
    for policy in (SAYS, ASKS, BOTH):
        assert not passes(policy, extended(flags, PLAIN))


@given(st.binary(min_size=1, max_size=40).map(lambda data: b"\6" + data))
def test_with_both_directions_forbidden_nothing_is_forwarded(data: bytes) -> None:
    judged = NEITHER.judge(data)
    assert judged is None or (judged.forwarded, judged.replacement) == (0, b"")


def test_only_the_flags_are_buffered() -> None:
    huge = struct.pack(">BxxxiI", 6, -(1 << 31), Action.PROVIDE | TEXT)
    assert SAYS.judge(huge[:11]) is None
    assert SAYS.judge(huge) == CutTextVerdict(forwarded=8 + (1 << 31))
    assert ASKS.judge(huge) == CutTextVerdict(dropped=8 + (1 << 31))
