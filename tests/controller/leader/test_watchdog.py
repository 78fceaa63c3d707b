"""Tests the watchdog thread: what it records, and which errors must not end it."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
import sqlalchemy as sa

from controller.jobs.pipeline.border import Call, PluginBorder
from controller.leader import watchdog as module
from controller.leader.watchdog import Watchdog
from controller.store.jobs.progress import HookFailure


class Border:
    """A plugin border that reports one hook as always running in the event loop."""

    def call_in(self, _task: object) -> Call:
        return Call("two", "on_create", "j1")


class Metrics:
    """Keeps the plugins of all stalls that were counted."""

    def __init__(self) -> None:
        self.stalls: list[str] = []

    def loop_stalled(self, seconds: float, plugin: str) -> None:
        assert seconds > 0
        self.stalls.append(plugin)


async def test_a_database_that_refuses_the_record_does_not_end_the_watchdog(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, seconds in (
        ("BEAT_SECONDS", 0.01), ("SHORTEST_SECONDS", 0.05), ("BLOCKED_SECONDS", 0.1),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)
    kept: list[HookFailure] = []

    async def keep(self: object, _call: Call, failure: HookFailure, *, gone: bool = False) -> None:
        if not caplog.text.count("cannot record the blocking plugin"):
            raise sa.exc.ProgrammingError("INSERT", {}, Exception("permission denied"))
        if not gone:
            kept.append(failure)

    monkeypatch.setattr(Watchdog, "_keep", keep)
    border, metrics = cast(PluginBorder, Border()), Metrics()
    watching = asyncio.create_task(Watchdog(border, store_url="", metrics=metrics).run())
    await asyncio.sleep(0)  # the thread starts
    blocked_until = time.monotonic() + 20.0
    while not kept and time.monotonic() < blocked_until:
        time.sleep(0.01)  # the hook that blocks the loop
    async with asyncio.timeout(20.0):
        while not metrics.stalls:
            await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.wait([watching])
    assert metrics.stalls == ["two"]
    assert [(one.plugin, one.blocked) for one in kept] == [("two", True)]
