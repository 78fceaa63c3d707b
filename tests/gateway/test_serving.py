"""Tests when a process begins to accept connections.

tests/contract/test_lifecycle.py has start and end.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from gateway import serving
from gateway.bus.holder import RouteTableHolder
from gateway.core.bus_state import BusClock
from gateway.serving import first_table
from shared.events import Head
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable

LONG_SECONDS = 0.3
"""By then a wait that is over has been noticed, some ten times."""


def told() -> RouteTableHolder:
    """Return a table holder that the test controls."""
    return RouteTableHolder(
        clock=BusClock(bus_grace_seconds=300, controller_grace_seconds=300),
        monotonic=time.monotonic,
        wall=time.time,
        on_change=lambda _sids: None,
        on_closed=lambda: None,
    )


async def is_waiting(task: asyncio.Task[None]) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), LONG_SECONDS)
    return not task.done()


async def test_connections_wait_for_the_first_table() -> None:
    holder = told()
    task = asyncio.create_task(first_table(holder))
    assert await is_waiting(task)
    holder.table = RouteTable(Head(epoch="e", seq=0, term=1, routes=0, revoked=0), RouteReader())
    await task


async def test_connections_do_not_wait_for_an_unavailable_table() -> None:
    holder = told()
    holder.last_error = "Redis holds no route table"
    await first_table(holder)


async def test_connections_do_not_wait_beyond_a_deadline_for_an_unreadable_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The head is good, and the snapshot is refused again and again.
    monkeypatch.setattr(serving, "FIRST_TABLE_SECONDS", 0.1)
    await first_table(told())


async def test_a_worker_without_table_accepts_only_if_no_other_can() -> None:
    holder, others = told(), [True]
    holder.last_error = "Redis did not answer in time"
    task = asyncio.create_task(first_table(holder, may_refuse=lambda: not others[0]))
    assert await is_waiting(task)
    others[0] = False
    await task
