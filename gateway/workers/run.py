"""A worker process: a complete gateway, which the supervisor monitors and drains."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import assert_never

import uvloop

from gateway.app import Gateway
from gateway.bus.metrics import TableMetrics, rank_of
from gateway.pages.assets import Assets
from gateway.relay.listening import Listener
from gateway.serving import collectors, first_table, run_until_stopped
from gateway.settings import Settings
from gateway.workers.channel import (
    Channel,
    Down,
    Drain,
    Measured,
    SignOut,
    StatusRequest,
    Up,
    WorkerStatus,
    decode_down,
)
from gateway.workers.fork_server import WorkerMain
from gateway.workers.shares import Shares
from gateway.workers.sums import families_of
from shared.log import handlers
from shared.runtime.process import EXIT_FAILED

log = logging.getLogger(__name__)


def make_worker_main(settings: Settings, assets: Assets, shares: Shares) -> WorkerMain:
    """Return the function that the fork server calls in each worker process."""

    def run(number: int, control: socket.socket, listening: Sequence[socket.socket]) -> None:
        settings.log.apply(processes=settings.workers)
        for handler in handlers():
            handler.addFilter(_named(number))
        uvloop.run(_run_worker(settings, assets, shares, number, control, listening))

    return run


def _named(number: int) -> Callable[[logging.LogRecord], bool]:
    def name(record: logging.LogRecord) -> bool:
        record.worker = number
        return True

    return name


async def _run_worker(
    settings: Settings,
    assets: Assets,
    shares: Shares,
    number: int,
    control: socket.socket,
    listening: Sequence[socket.socket],
) -> None:
    channel = Channel(decode_down, lambda message: worker.take(message))
    gateway = Gateway(
        settings, assets, tell_workers=lambda sid, jti: channel.send(SignOut(sid, jti))
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(gateway)
        worker = Worker(
            gateway=gateway,
            shares=shares,
            number=number,
            listening=listening,
            send=channel.send,
        )
        stack.callback(worker.close)
        channel.closed.add_done_callback(_end_at_once)
        await channel.open(control)
        await run_until_stopped(gateway, close=worker.close, stop=worker.stop, beside=worker.accept)
        channel.closed.remove_done_callback(_end_at_once)
        channel.close()


def _end_at_once(_closed: asyncio.Future[None]) -> None:
    """Exit at once: without the supervisor, nobody would ever end this process."""
    logging.shutdown()
    os._exit(EXIT_FAILED)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Worker:
    """Handles the supervisor's messages; *send* sends to the supervisor."""

    gateway: Gateway
    shares: Shares
    number: int
    listening: Sequence[socket.socket]
    send: Callable[[Up], None]
    stop: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _listener: Listener | None = None

    # Connections

    async def accept(self) -> None:
        """Accept connections once there is a table.

        A worker without a table would refuse all requests, while other workers may have one. If no
        worker has a table, one worker accepts and refuses, so that clients do not wait.
        """
        await first_table(self.gateway.follower, may_refuse=lambda: not self.shares.is_taken)
        if self.stop.is_set():
            return
        self.shares.set(self.number, 0)
        self._listener = Listener(
            self.gateway.path, self.listening, tls=self.gateway.tls, at_once=1, over=self._is_over
        )
        log.info("accepting connections")

    def _is_over(self) -> bool:
        self.shares.set(self.number, self.gateway.path.open)
        return self.shares.is_over(self.number)

    def close(self) -> None:
        """Accept no more connections."""
        self.shares.leave(self.number)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for sock in self.listening:
            sock.close()
        self.listening = ()

    # Messages of the supervisor

    def take(self, message: Down) -> None:
        """Handle *message*."""
        match message:
            case StatusRequest():
                self.send(self.status(message))
            case SignOut(sid=sid, jti=jti):
                self.gateway.follower.end_grant(sid, jti)
            case Drain():
                self.stop.set()
            case _:
                assert_never(message)

    def status(self, request: StatusRequest) -> WorkerStatus:
        """Return the status of this worker, with the parts that *request* names."""
        follower = self.gateway.follower
        table = follower.table
        return WorkerStatus(
            number=request.number,
            epoch=None if table is None else table.epoch,
            seq=0 if table is None else table.seq,
            hash=0 if table is None else table.hash,
            rank=rank_of(follower),
            lag_seconds=follower.lag_seconds,
            open=self.gateway.path.open,
            accepting=self._listener is not None,
            reasons=tuple(self.gateway.reasons()),
            degraded=tuple(self.gateway.degraded()),
            measured=self._measured() if request.measured else None,
            described=json.dumps(self.gateway.describe(request.host))
            if request.described
            else None,
        )

    def _measured(self) -> Measured:
        table = TableMetrics(self.gateway.follower)
        return Measured(families_of(collectors(self.gateway)), families_of([table]))
