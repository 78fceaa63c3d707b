"""A worker: the whole gateway but for what the supervisor does for all."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import cast

import uvloop
from prometheus_client.registry import Collector

from gateway.app import Gateway, make_bus_clock
from gateway.bus.feed import Changed, Feed
from gateway.pages.assets import Assets
from gateway.relay.gateway import DataPath
from gateway.relay.listening import Listener
from gateway.serving import collectors, relaying, work
from gateway.settings import Settings
from gateway.workers import messages as m
from gateway.workers.accepting import Shares
from gateway.workers.fed import Fed
from gateway.workers.nursery import Work
from gateway.workers.sums import families_of
from shared.bus import BusReader
from shared.log import handlers
from shared.process import EXIT_FAILED

log = logging.getLogger(__name__)


def make_work(settings: Settings, assets: Assets, shares: Shares) -> Work:
    """Return what a worker does, for the nursery."""

    def run(number: int, feed: socket.socket, listening: Sequence[socket.socket]) -> None:
        settings.log.apply(processes=settings.workers)
        for handler in handlers():
            handler.addFilter(_named(number))
        uvloop.run(_work(settings, assets, shares, number=number, feed=feed, listening=listening))

    return run


def _named(number: int) -> Callable[[logging.LogRecord], bool]:
    def name(record: logging.LogRecord) -> bool:
        record.worker = number
        return True

    return name


async def _work(
    settings: Settings,
    assets: Assets,
    shares: Shares,
    *,
    number: int,
    feed: socket.socket,
    listening: Sequence[socket.socket],
) -> None:
    link = _Link()

    def be_fed(_reader: BusReader, on_change: Changed, on_closed: Callable[[], None]) -> Feed:
        link.fed = Fed(
            clock=make_bus_clock(settings),
            monotonic=time.monotonic,
            wall=time.time,
            send=link.send,
            on_change=on_change,
            on_closed=on_closed,
        )
        return link.fed

    gateway = Gateway(settings, assets, be_fed)
    async with AsyncExitStack() as stack:
        path = await stack.enter_async_context(relaying(gateway))
        worker = Worker(gateway, path, shares, number=number, listening=listening)
        stack.callback(worker.close)
        if link.fed is not None:
            link.fed.worker = worker
        feed.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: link, sock=feed)
        await work(gateway, path, close=worker.close, stop=worker.stop)
        link.over()


class Worker:
    """What the supervisor asks of a worker, beside keeping its table."""

    def __init__(
        self,
        gateway: Gateway,
        path: DataPath,
        shares: Shares,
        *,
        number: int,
        listening: Sequence[socket.socket],
    ) -> None:
        self.stop = asyncio.Event()
        self._gateway = gateway
        self._path = path
        self._shares = shares
        self._number = number
        self._listening = listening
        self._collectors: list[Collector] = collectors(gateway, path)
        self._listener: Listener | None = None

    def standing(self, number: int) -> m.Standing:
        """Return how this worker stands."""
        feed = self._gateway.feed
        table = feed.table
        return m.Standing(
            number=number,
            epoch=None if table is None else table.epoch,
            seq=0 if table is None else table.seq,
            hash=0 if table is None else table.hash,
            lag_seconds=feed.lag_seconds,
            open=self._path.open,
            accepting=self._listener is not None,
            reasons=tuple(self._gateway.reasons()),
        )

    def measured(self, number: int) -> m.Measured:
        """Return what this worker has counted."""
        return m.Measured(number, families_of(self._collectors))

    def accept(self) -> None:
        """Take connections from now on."""
        if self._listener is not None or self.stop.is_set():
            return
        self._listener = Listener(
            self._path, self._listening, tls=self._gateway.tls, at_once=1, over=self._is_over
        )
        log.info("this worker accepts connections")

    def _is_over(self) -> bool:
        self._shares.set(self._number, self._path.open)
        return self._shares.is_over(self._number)

    def drain(self) -> None:
        """End in time."""
        self.stop.set()

    def close(self) -> None:
        """Take no further connections."""
        self._shares.leave(self._number)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for sock in self._listening:
            sock.close()
        self._listening = ()


class _Link(asyncio.Protocol):
    """The worker's end of its socket."""

    def __init__(self) -> None:
        self.fed: Fed | None = None
        self._transport: asyncio.Transport | None = None
        self._frames = m.Frames()
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Apply what the supervisor sent."""
        if self.fed is not None:
            for body in self._frames.feed(data):
                self.fed.take(m.decode_down(body))

    def connection_lost(self, exc: Exception | None) -> None:
        """End at once: without the supervisor nobody would tell of a revocation."""
        if not self._over:
            logging.shutdown()
            os._exit(EXIT_FAILED)

    def send(self, message: m.Up) -> None:
        """Send *message* to the supervisor."""
        if self._transport is not None:
            self._transport.write(m.encode(message))

    def over(self) -> None:
        """This worker has ended in time."""
        self._over = True
        if self._transport is not None:
            self._transport.close()
