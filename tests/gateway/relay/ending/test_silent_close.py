"""Checks of a closing TLS connection: when it is complete, and when the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from gateway.relay.ending.closer import SilentClose, is_last_word
from tests.gateway.relay.ending.test_deferred_aborts import connected


class RecordingLoop:
    """Records the calls that a loop is asked to make, and when."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.asked.append((seconds, callback))

    def pass_time(self) -> float:
        """Make the next call, and return after how many seconds it is due."""
        seconds, callback = self.asked.pop(0)
        callback()
        return seconds


def looks(transport: asyncio.Transport) -> RecordingLoop:
    later = RecordingLoop()
    SilentClose(transport, cast(asyncio.AbstractEventLoop, later)).check_later()
    return later


@pytest.mark.parametrize(
    ("held", "is_last"),
    [
        ((0, 0), True), ((1024, 1024), True), ((1025, 0), False), ((0, 1025), False),
        # There was no look before.
        ((-1, 0), False),
    ],
)  # fmt: skip
def test_unsent_data_counts_as_the_close_frame_only_if_little_at_two_checks(
    held: tuple[int, int], is_last: bool
) -> None:
    assert is_last_word(*held) is is_last


async def test_a_silent_peer_with_all_data_delivered_is_closed_at_the_second_check() -> None:
    async with connected(1) as ((side,), _):
        later = looks(side.transport)
        assert later.pass_time() == 0.25
        assert not side.transport.is_closing()
        assert later.pass_time() == 0.25
        assert side.transport.is_closing()
        assert later.asked == []


async def test_a_closed_connection_is_not_checked_again() -> None:
    async with connected(1) as ((side,), _):
        later = looks(side.transport)
        side.transport.abort()
        await side.gone()
        later.pass_time()
        assert later.asked == []
