"""Tests the activity that gateways report: it is read or unknown, without waiting for Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from controller.sessions import gateways as module
from controller.sessions.gateways import Activities
from shared.bus import ACTIVITIES_AT_ONCE, ReportReader
from shared.errors import BusUnavailable
from shared.reports import Activity

FOUND = Activity(at=0.0, subs=("ada",))


class Reader:
    def __init__(self, *, fails: bool = False, hangs: bool = False) -> None:
        self.fails = fails
        self.hangs = hangs

    async def activities_of(self, sids: Sequence[str], *, now: float) -> dict[str, Activity]:
        if self.fails:
            raise BusUnavailable("gone")
        if self.hangs:
            await asyncio.Event().wait()
        return dict.fromkeys({"s", "t"} & set(sids), FOUND)


async def test_reported_activity_is_returned() -> None:
    activities = Activities(cast(ReportReader, Reader()), clock=lambda: 0.0)
    assert await activities.of(["s", "other"]) == {"s": FOUND}
    # More than one batch of concurrent reads.
    many = [f"other-{n}" for n in range(ACTIVITIES_AT_ONCE)]
    assert await activities.of(["s", *many, "t"]) == {"s": FOUND, "t": FOUND}


@pytest.mark.parametrize("reader", [Reader(fails=True), Reader(hangs=True)])
async def test_an_unavailable_or_slow_redis_is_no_error(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.05)
    async with asyncio.timeout(30):
        assert await Activities(cast(ReportReader, reader), clock=lambda: 0.0).of(["s"]) == {}
