"""For which stall, and for how long, each of the gateway's parts has a connection watched."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.ending import ends as module
from gateway.relay.ending.ends import Ends
from gateway.relay.transports import reset
from tests.gateway.relay.ending.test_deferred_aborts import Side, connected
from tests.gateway.relay.harness import Peer

BROWSER, APP = 30.0, 70.0
MANY = b"x" * (32 << 20)
Watch = Callable[..., None]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    limits = Limits(write_stall_seconds=BROWSER, app_write_stall_seconds=APP)
    one = Ends(asyncio.get_running_loop(), limits)
    yield one
    one.shut_down()


@pytest.fixture
async def joined() -> AsyncIterator[tuple[Side, Peer]]:
    async with connected(1) as ((side,), (peer,)):
        yield side, peer


def stalled() -> None:
    """What was passed in."""


def other() -> None:
    """What another one would pass in."""


def watched(ends: Ends, transport: asyncio.Transport) -> tuple[float, bool, Any]:
    one = ends.stalls.watched[transport]
    return one.seconds, one.passing, one.stalled


def is_reset(call: Any, transport: asyncio.Transport) -> bool:
    return isinstance(call, partial) and (call.func, call.args) == (reset, (transport,))


async def test_a_browser_is_reset_after_its_time_unless_somebody_says_otherwise(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    assert not ends.watches(transport)
    ends.watch(transport)
    seconds, passing, call = watched(ends, transport)
    assert (seconds, passing, is_reset(call, transport)) == (BROWSER, False, True)
    ends.watch(transport, stalled, passing=True)
    assert watched(ends, transport) == (BROWSER, True, stalled)
    assert ends.watches(transport)
    ends.forget(transport)
    assert not ends.watches(transport)


async def test_an_app_has_its_own_time(ends: Ends, joined: tuple[Side, Peer]) -> None:
    transport = joined[0].transport
    ends.watch(transport, stalled, app=True)
    assert watched(ends, transport) == (APP, False, stalled)


async def test_writes_that_wait_are_watched_until_they_do_not_and_nothing_is_replaced(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    ends.writes_wait(transport)
    seconds, passing, call = watched(ends, transport)
    assert (seconds, passing, is_reset(call, transport)) == (BROWSER, True, True)
    ends.writes_wait(transport, other)
    assert watched(ends, transport)[2] is call
    ends.writes_wait(transport, other, app=True)
    assert watched(ends, transport)[0] == BROWSER
    ends.forget(transport)
    ends.writes_wait(transport, stalled)
    assert watched(ends, transport) == (BROWSER, True, stalled)
    ends.forget(transport)
    ends.writes_wait(transport, stalled, app=True)
    assert watched(ends, transport) == (APP, True, stalled)
    ends.writes_wait(transport, other, app=True)
    ends.writes_wait(transport, other)
    assert watched(ends, transport) == (APP, True, stalled)


async def test_what_the_kernel_holds_is_looked_at_and_what_it_has_passed_on_is_not(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    side, peer = joined
    transport = side.transport
    ends.look_at(transport)
    ends.look_at(transport, stalled, app=True)
    assert not ends.watches(transport)
    peer.stall()
    transport.write(MANY)
    ends.look_at(transport)
    seconds, passing, call = watched(ends, transport)
    assert (seconds, passing, is_reset(call, transport)) == (BROWSER, True, True)
    ends.look_at(transport, stalled, app=True)
    assert watched(ends, transport)[0] == BROWSER
    ends.forget(transport)
    ends.look_at(transport, stalled, app=True)
    assert watched(ends, transport) == (APP, True, stalled)
    ends.look_at(transport)
    ends.look_at(transport, other, app=True)
    assert watched(ends, transport) == (APP, True, stalled)


async def test_a_connection_that_is_gone_by_now_is_not_watched(ends: Ends) -> None:
    calls: list[Watch] = [
        ends.watch, ends.writes_wait, ends.look_at, ends.close, ends.forget, ends.keep_app_alive,
    ]  # fmt: skip
    for call in calls:
        call(None)
    for call in (ends.watch, ends.writes_wait, ends.look_at):
        call(None, stalled, app=True)
    ends.seen_by_loop(None, stalled)
    assert (len(ends.stalls), len(ends.hangups)) == (0, 0)


async def test_an_apps_host_that_vanishes_is_found_by_the_kernel(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    sock = joined[0].transport.get_extra_info("socket")
    assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    ends.keep_app_alive(joined[0].transport)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # In about the time in which a stall is found.
    assert APP / 2 <= sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= APP * 1.5


@pytest.mark.parametrize("waits", [True, False])
async def test_the_last_bytes_are_watched_where_some_wait(
    ends: Ends, joined: tuple[Side, Peer], waits: bool
) -> None:
    side, peer = joined
    transport = side.transport
    sock = transport.get_extra_info("socket")
    peer.stall()
    if waits:
        transport.write(MANY)
    ends.close(transport)
    assert transport.is_closing()
    assert ends.watches(transport) is waits
    if waits:
        seconds, passing, call = watched(ends, transport)
        assert (seconds, passing, is_reset(call, transport)) == (BROWSER, False, True)
        # And what is left to the kernel is bounded as well.
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
    ends.forget(transport)
    ends.close(transport)
    assert not ends.watches(transport)


@pytest.mark.parametrize("waits", [True, False])
async def test_an_app_that_is_closed_in_time_is_not_reset(
    ends: Ends, joined: tuple[Side, Peer], monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    later: list[tuple[Any, ...]] = []
    side, peer = joined
    sock = side.transport.get_extra_info("socket")
    peer.stall()
    if waits:
        side.transport.write(MANY)

    class Loop:
        def call_later(self, *given: Any) -> None:
            later.append(given)

    ends.loop = Loop()  # type: ignore[assignment]  # all that is asked of it
    ends.close_within(side.transport, 9.0)
    assert side.transport.is_closing()
    assert later == ([(9.0, reset, side.transport)] if waits else [])
    if waits:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
    ends.close_within(side.transport, 9.0)
    assert len(later) == waits


async def test_under_tls_the_loop_may_say_nothing_of_a_browser_that_left(
    ends: Ends, joined: tuple[Side, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    side, peer = joined
    left = asyncio.Event()
    # As for a turn: the loop sees no FIN then.
    side.transport.pause_reading()
    ends.hangups.watch(side.transport, stalled)
    ends.seen_by_loop(side.transport, left.set)
    assert len(ends.hangups) == 0
    monkeypatch.setattr(module, "is_secured", lambda _: True)
    ends.seen_by_loop(side.transport, left.set)
    assert len(ends.hangups) == 1
    peer.close()
    async with asyncio.timeout(20):
        await left.wait()


async def test_a_connection_is_forgotten_for_whatever_it_was_watched(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    ends.watch(transport)
    ends.hangups.watch(transport, stalled)
    ends.forget(transport)
    assert (len(ends.stalls), len(ends.hangups)) == (0, 0)


async def test_once_shut_down_nothing_is_watched_and_nothing_waits(
    ends: Ends, joined: tuple[Side, Peer]
) -> None:
    side, _ = joined
    ends.watch(side.transport)
    ends.hangups.watch(side.transport, stalled)
    ends.deferred.add(side.transport)
    ends.shut_down()
    assert (len(ends.stalls), len(ends.hangups), len(ends.deferred)) == (0, 0, 0)
    await side.gone()
