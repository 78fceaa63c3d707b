"""Which stalls are watched for, and with which deadline, by each part of the gateway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.ending import closer as module
from gateway.relay.ending.closer import Closer
from gateway.relay.transports import reset
from tests.gateway.relay.ending.test_deferred_aborts import Side, connected
from tests.gateway.relay.harness import Peer

BROWSER, APP = 30.0, 70.0
MANY = b"x" * (32 << 20)
Watch = Callable[..., None]


@pytest.fixture
async def closer() -> AsyncIterator[Closer]:
    limits = Limits(write_stall_seconds=BROWSER, app_write_stall_seconds=APP)
    one = Closer(asyncio.get_running_loop(), limits)
    yield one
    one.close_all()


@pytest.fixture
async def joined() -> AsyncIterator[tuple[Side, Peer]]:
    async with connected(1) as ((side,), (peer,)):
        yield side, peer


def stalled() -> None:
    """The callback that was passed."""


def other() -> None:
    """A second callback."""


def watched(closer: Closer, transport: asyncio.Transport) -> tuple[float, bool, Any]:
    one = closer.stalls.watched[transport]
    return one.seconds, one.transient, one.stalled


def is_reset(call: Any, transport: asyncio.Transport) -> bool:
    return isinstance(call, partial) and (call.func, call.args) == (reset, (transport,))


async def test_a_browser_is_reset_after_its_stall_deadline_by_default(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    assert transport not in closer.stalls.watched
    closer.watch(transport)
    seconds, transient, call = watched(closer, transport)
    assert (seconds, transient, is_reset(call, transport)) == (BROWSER, False, True)
    closer.watch(transport, stalled, transient=True)
    assert watched(closer, transport) == (BROWSER, True, stalled)
    assert transport in closer.stalls.watched
    closer.forget(transport)
    assert transport not in closer.stalls.watched


async def test_an_app_has_its_own_stall_deadline(closer: Closer, joined: tuple[Side, Peer]) -> None:
    transport = joined[0].transport
    closer.watch(transport, stalled, app=True)
    assert watched(closer, transport) == (APP, False, stalled)


async def test_buffered_writes_are_watched_until_flushed(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    closer.watch_writes(transport)
    seconds, transient, call = watched(closer, transport)
    assert (seconds, transient, is_reset(call, transport)) == (BROWSER, True, True)
    closer.watch_writes(transport, other)
    assert watched(closer, transport)[2] is call
    closer.watch_writes(transport, other, app=True)
    assert watched(closer, transport)[0] == BROWSER
    closer.forget(transport)
    closer.watch_writes(transport, stalled)
    assert watched(closer, transport) == (BROWSER, True, stalled)
    closer.forget(transport)
    closer.watch_writes(transport, stalled, app=True)
    assert watched(closer, transport) == (APP, True, stalled)
    closer.watch_writes(transport, other, app=True)
    closer.watch_writes(transport, other)
    assert watched(closer, transport) == (APP, True, stalled)


async def test_unacknowledged_kernel_data_is_watched(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    side, peer = joined
    transport = side.transport
    closer.watch_if_unacknowledged(transport)
    closer.watch_if_unacknowledged(transport, stalled, app=True)
    assert transport not in closer.stalls.watched
    peer.stall()
    transport.write(MANY)
    closer.watch_if_unacknowledged(transport)
    seconds, transient, call = watched(closer, transport)
    assert (seconds, transient, is_reset(call, transport)) == (BROWSER, True, True)
    closer.watch_if_unacknowledged(transport, stalled, app=True)
    assert watched(closer, transport)[0] == BROWSER
    closer.forget(transport)
    closer.watch_if_unacknowledged(transport, stalled, app=True)
    assert watched(closer, transport) == (APP, True, stalled)
    closer.watch_if_unacknowledged(transport)
    closer.watch_if_unacknowledged(transport, other, app=True)
    assert watched(closer, transport) == (APP, True, stalled)


async def test_a_closed_connection_is_not_watched(closer: Closer) -> None:
    calls: list[Watch] = [
        closer.watch, closer.watch_writes, closer.watch_if_unacknowledged,
        closer.close, closer.forget, closer.enable_keepalive,
    ]  # fmt: skip
    for call in calls:
        call(None)
    for call in (closer.watch, closer.watch_writes, closer.watch_if_unacknowledged):
        call(None, stalled, app=True)
    closer.rely_on_loop(None, stalled)
    assert (len(closer.stalls.watched), len(closer.hangups.callbacks)) == (0, 0)


async def test_a_vanished_upstream_host_is_detected_by_keep_alive(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    sock = joined[0].transport.get_extra_info("socket")
    assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    closer.enable_keepalive(joined[0].transport)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # In about the time in which a stall is found.
    assert APP / 2 <= sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= APP * 1.5


@pytest.mark.parametrize("waits", [True, False])
async def test_the_last_bytes_are_watched_if_any_are_buffered(
    closer: Closer, joined: tuple[Side, Peer], waits: bool
) -> None:
    side, peer = joined
    transport = side.transport
    sock = transport.get_extra_info("socket")
    peer.stall()
    if waits:
        transport.write(MANY)
    closer.close(transport)
    assert transport.is_closing()
    assert (transport in closer.stalls.watched) is waits
    if waits:
        seconds, transient, call = watched(closer, transport)
        assert (seconds, transient, is_reset(call, transport)) == (BROWSER, False, True)
        # And what is left to the kernel is bounded as well.
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
    closer.forget(transport)
    closer.close(transport)
    assert transport not in closer.stalls.watched


@pytest.mark.parametrize("waits", [True, False])
async def test_an_app_that_is_closed_in_time_is_not_reset(
    closer: Closer, joined: tuple[Side, Peer], monkeypatch: pytest.MonkeyPatch, waits: bool
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

    closer.loop = Loop()  # type: ignore[assignment]  # all that is asked of it
    closer.close_within(side.transport, 9.0)
    assert side.transport.is_closing()
    assert later == ([(9.0, reset, side.transport)] if waits else [])
    if waits:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
    closer.close_within(side.transport, 9.0)
    assert len(later) == waits


async def test_a_browser_that_left_under_tls_is_detected_without_a_loop_event(
    closer: Closer, joined: tuple[Side, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    side, peer = joined
    left = asyncio.Event()
    # As for a turn: the loop sees no FIN then.
    side.transport.pause_reading()
    closer.hangups.watch(side.transport, stalled)
    closer.rely_on_loop(side.transport, left.set)
    assert len(closer.hangups.callbacks) == 0
    monkeypatch.setattr(module, "is_tls", lambda _: True)
    closer.rely_on_loop(side.transport, left.set)
    assert len(closer.hangups.callbacks) == 1
    peer.close()
    async with asyncio.timeout(20):
        await left.wait()


async def test_a_connection_is_removed_from_every_watch(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    transport = joined[0].transport
    closer.watch(transport)
    closer.hangups.watch(transport, stalled)
    closer.forget(transport)
    assert (len(closer.stalls.watched), len(closer.hangups.callbacks)) == (0, 0)


async def test_after_shutdown_no_connection_is_watched(
    closer: Closer, joined: tuple[Side, Peer]
) -> None:
    side, _ = joined
    closer.watch(side.transport)
    closer.hangups.watch(side.transport, stalled)
    closer.deferred.add(side.transport)
    closer.close_all()
    assert (len(closer.stalls.watched), len(closer.hangups.callbacks), len(closer.deferred)) == (
        0,
        0,
        0,
    )
    await side.gone()
