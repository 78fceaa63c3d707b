"""The watch measures, sets the step and closes connections; without a measurement it does not."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from pathlib import Path
from typing import cast

import pytest

from gateway.core.limits.overload import Overload, Step
from gateway.overload import OverloadWatch, make_trim
from gateway.relay.gateway import DataPath

MIB = 1 << 20


class Machine:
    """Memory set by the test, and the actions of the watch."""

    def __init__(self, bound: int = 100) -> None:
        self.used: int | None = 0
        self.data_path = 0
        self.open = 0
        self.trims = 0
        self.shares: list[int] = []
        self.overload = Overload(bound)
        self.watch = OverloadWatch(
            overload=self.overload,
            data_path=cast(DataPath, self),
            measure=lambda: self.used,
            trim=self._trim,
        )

    def shed_idle(self, *, stalled_seconds: float) -> int:
        assert stalled_seconds > 0
        self.data_path += 1
        return 7

    async def shed_buffers(self, share_bytes: int) -> int:
        self.shares.append(share_bytes)
        return 3

    def _trim(self) -> None:
        self.trims += 1

    def look(self, used: int | None) -> Step:
        self.used = used
        self.watch.measure_once()
        return self.overload.step


def test_idle_connections_are_closed_repeatedly_from_their_step_on() -> None:
    machine = Machine()
    assert machine.look(85) is Step.UNAUTHENTICATED
    assert machine.data_path == 0
    assert machine.look(89) is Step.IDLE
    assert machine.look(96) is Step.REQUESTS
    assert (machine.data_path, machine.watch.closed) == (2, 14)
    assert machine.look(10) is Step.NONE
    assert machine.data_path == 2


async def test_clients_that_buffer_too_much_are_ended_from_their_step_on() -> None:
    machine = Machine(bound=800 * MIB)
    share = 100 * MIB
    for used, shares in ((500, []), (570, [share]), (530, [share] * 2), (510, [share] * 2)):
        machine.look(used * MIB)
        await machine.watch.shed_buffers(0.0)
        assert machine.shares == shares
    assert machine.watch.closed == 6
    for used in (650, 710, 770):
        share //= 2  # at each step
        machine.look(used * MIB)
        await machine.watch.shed_buffers(0.0)
        assert machine.shares[-1] == share


async def test_many_connections_are_counted_seldom_unless_memory_grows() -> None:
    machine = Machine(bound=1000)
    machine.open = 32_000

    async def counts_at(now: float, used: int) -> bool:
        before = len(machine.shares)
        machine.look(used)
        await machine.watch.shed_buffers(now)
        return len(machine.shares) > before

    assert await counts_at(0.0, 720)
    assert not await counts_at(1.9, 720)
    assert await counts_at(2.0, 720)
    assert not await counts_at(2.25, 727)
    assert await counts_at(2.5, 728)
    assert not await counts_at(2.75, 720)
    assert await counts_at(3.0, 728), "memory grows again"


async def test_free_memory_is_returned_soon_after_clients_were_ended() -> None:
    machine = Machine(bound=800)
    machine.look(570)
    assert machine.watch.claim_trim(0.0)
    await machine.watch.shed_buffers(1.0)
    await machine.watch.shed_buffers(1.25)
    trims = [n / 4 for n in range(4, 80) if machine.watch.claim_trim(n / 4)]
    assert trims == [1.5, 11.5]


def test_free_memory_is_returned_periodically_while_load_is_shed() -> None:
    machine = Machine()
    machine.look(10)
    assert not machine.watch.claim_trim(0.0)
    machine.look(85)
    trims = [second for second in range(25) if machine.watch.claim_trim(float(second))]
    assert trims == [0, 10, 20]


def test_free_memory_is_returned_after_many_connections_ended() -> None:
    machine = Machine(bound=0)

    def trims_with(count: int, now: float) -> bool:
        machine.open = count
        return machine.watch.claim_trim(now)

    assert not trims_with(1000, 0.0)
    assert not trims_with(751, 1.0)
    assert trims_with(750, 2.0)
    assert not trims_with(100, 3.0)  # so soon after the last
    assert trims_with(100, 12.0)
    # Much of what connections leave goes later.
    assert [second for second in range(13, 400) if trims_with(100, float(second))] == [42, 162]
    assert not any(trims_with(count, 500.0 + count) for count in (100, 60, 1000, 751))
    # A few that come and go give nothing back.
    few = Machine(bound=0)
    few.open = 63
    assert not few.watch.claim_trim(0.0)
    few.open = 0
    assert not few.watch.claim_trim(100.0)


def test_free_memory_is_returned_after_many_routes_were_removed() -> None:
    machine, routes = Machine(bound=0), 100_000
    machine.watch.routes = lambda: routes
    assert not machine.watch.claim_trim(0.0)
    routes = 80_000
    assert not machine.watch.claim_trim(1.0)
    routes = 10
    # A table that was replaced is freed in pieces, so later trims return more.
    assert [n for n in range(2, 400) if machine.watch.claim_trim(float(n))] == [2, 32, 152]


def test_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    with caplog.at_level(logging.INFO):
        for used in (85, 86, 87, 96, 97, 10):
            machine.look(used)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "unauthenticated" in caplog.records[0].message


async def test_without_a_bound_or_a_measurement_no_load_is_shed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unbounded, blind = Machine(bound=0), Machine()
    unbounded.used, blind.used = 96, None
    for machine in (unbounded, blind):
        machine.open = 1000
        task = asyncio.create_task(machine.watch.run())
        await asyncio.sleep(0.05)
        assert machine.overload.step is Step.NONE
        assert len(caplog.records) == (machine is blind)
        # What is free is given back all the same.
        machine.open = 10
        async with asyncio.timeout(10):
            while not machine.trims:
                await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert machine.data_path == 0
    assert "cannot be read" in caplog.records[0].message


async def test_memory_is_watched_until_cancellation() -> None:
    machine = Machine()
    machine.used = 96
    task = asyncio.create_task(machine.watch.run())
    async with asyncio.timeout(10):
        while machine.data_path < 2:
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_metrics_export_step_and_memory() -> None:
    machine = Machine()
    machine.look(89)
    samples = {
        (sample.name, sample.labels.get("step", "")): sample.value
        for family in machine.watch.collect()
        for sample in family.samples
    }
    assert samples[("fumarole_gateway_memory_bytes", "")] == 89
    assert samples[("fumarole_gateway_memory_bound_bytes", "")] == 100
    assert samples[("fumarole_gateway_shed_connections_total", "")] == 7
    names = ("buffers", "unauthenticated", "idle", "requests")
    assert [samples["fumarole_gateway_shedding", name] for name in names] == [1, 1, 1, 0]
    assert samples["fumarole_gateway_shedding_entered_total", "idle"] == 1


def resident() -> int:
    """Return the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_malloc_trim_returns_free_memory() -> None:
    library, size = ctypes.CDLL(None), 64 << 10
    library.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(library.malloc(size)) for _ in range(800)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    last = blocks.pop()  # it keeps the heap from shrinking by itself
    for block in blocks:
        library.free(block)
    before = resident()
    make_trim()()
    assert before - resident() > 40 << 20
    library.free(last)
