"""Tests the watchdog thread: what it records, and which errors must not end it."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.border import Call, PluginBorder
from controller.leader import watchdog as module
from controller.leader.watchdog import LoopStalls, Watchdog
from controller.store.jobs.hook_failures import HookFailure


class Border:
    """A plugin border that reports one hook as always running in the event loop."""

    def call_in(self, _task: object) -> Call:
        return Call("two", "on_create", "j1")


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
    border, registry = cast(PluginBorder, Border()), CollectorRegistry()
    watchdog = Watchdog(border, store_url="", metrics=LoopStalls(registry))
    watching = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)  # the thread starts
    blocked_until = time.monotonic() + 20.0
    while not kept and time.monotonic() < blocked_until:
        time.sleep(0.01)  # the hook that blocks the loop
    stalls = "fumarole_controller_loop_stalls_total"
    async with asyncio.timeout(20.0):
        while not registry.get_sample_value(stalls, {"plugin": "two"}):
            await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.wait([watching])
    assert [(one.plugin, one.blocked) for one in kept] == [("two", True)]
    assert registry.get_sample_value(stalls, {"plugin": "two"}) == 1
    assert registry.get_sample_value("fumarole_controller_loop_stalled_seconds_total")
