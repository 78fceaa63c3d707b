"""The supervisor: follows the bus for all workers, keeps them at work, answers operators."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector

from gateway.app import make_bounds, make_follower
from gateway.bus.feed import Feed
from gateway.bus.measures import FeedMeters, make_conditions, make_debug_route
from gateway.pages.assets import Assets
from gateway.serving import announce
from gateway.settings import Settings
from gateway.workers.accepting import Shares
from gateway.workers.feeding import Broadcast, ToldClock
from gateway.workers.meters import ProcessMeters, StaffMeters, describe_staff
from gateway.workers.nursery import Nursery, start_nursery
from gateway.workers.staff import Staff
from gateway.workers.work import make_work
from shared.bus import BusReader, Keys, connect
from shared.listening import listen
from shared.metrics import make_ops_app
from shared.process import EXIT_FAILED, raise_descriptor_limit, stop_on_signals
from shared.serving import listening

_GRACE_SECONDS: Final = 2.0
"""What workers are given beyond the drain before they are killed."""

log = logging.getLogger(__name__)


def supervise(settings: Settings, assets: Assets) -> None:
    """Serve with ``settings.workers`` workers until SIGTERM or SIGINT, then drain and return.

    Raises:
        OSError: If an address cannot be taken.
    """
    raise_descriptor_limit()  # which the workers inherit
    shares = Shares(settings.workers)
    nursery = start_nursery(make_work(settings, assets, shares))
    try:
        uvloop.run(_supervise(settings, nursery, shares))
    except* EOFError:
        log.critical("the nursery has ended, no worker can be started: giving up")
        raise SystemExit(EXIT_FAILED) from None
    finally:
        nursery.close()


async def _supervise(settings: Settings, nursery: Nursery, shares: Shares) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        # Made after the fork: what the nursery does not have, it does not keep open.
        sockets = listen(*settings.listen)
        for sock in sockets:
            stack.callback(sock.close)
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        clock = ToldClock(
            bus_grace_seconds=settings.bus_grace_seconds,
            controller_grace_seconds=settings.controller_grace_seconds,
        )
        broadcast = Broadcast(clock, table=lambda: follower.table)
        follower = make_follower(
            settings,
            BusReader(redis, Keys(settings.instance)),
            clock=clock,
            on_change=broadcast.on_change,
            on_closed=lambda: None,  # each worker notices it by the same clock
            on_event=broadcast.on_event,
        )
        staff = Staff(
            settings.workers,
            nursery=nursery,
            broadcast=broadcast,
            feed=follower,
            listening=sockets,
            shares=shares,
        )
        ops = _make_ops(settings, follower, staff, nursery, stop)
        address = await stack.enter_async_context(listening(ops, settings.ops_listen))
        announce(settings, sockets, address)
        await _run(settings, follower, staff, sockets, stop)


async def _run(
    settings: Settings,
    follower: Feed,
    staff: Staff,
    sockets: Sequence[socket.socket],
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follower.run())
        working = tasks.create_task(staff.run())
        await stop.wait()
        log.info("draining")
        for sock in sockets:
            sock.close()
        staff.drain()
        # Revocations reach the workers until the last of them has ended.
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_seconds + _GRACE_SECONDS):
                await asyncio.shield(working)
        following.cancel()
        working.cancel()


def _make_ops(
    settings: Settings, feed: Feed, staff: Staff, nursery: Nursery, stop: asyncio.Event
) -> web.Application:
    registry = CollectorRegistry(auto_describe=True)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for collector in (
        ProcessMeters(staff, nursery),
        FeedMeters(feed),
        StaffMeters(staff),
        staff.sums,
    ):
        registry.register(collector)

    def reasons() -> list[str]:
        # The bus is the supervisor's to ask.
        trouble = [feed.trouble] if feed.trouble is not None and not feed.serving else []
        doubt = [feed.doubt] if feed.doubt is not None else []
        return [*(["draining"] if stop.is_set() else []), *staff.reasons(), *trouble, *doubt]

    conditions = make_conditions(feed, make_bounds(settings), time.time)
    debug = make_debug_route(feed, conditions, more=lambda: describe_staff(staff))
    return make_ops_app(registry, reasons, [debug], measure=staff.measure)
