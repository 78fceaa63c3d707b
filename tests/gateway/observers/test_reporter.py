"""Tests reports: changes are written once, in bounded parts, and a slow Redis delays nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from gateway.core.access.access_right import AccessRight
from gateway.core.access.grants import Grant
from gateway.observers import reporter as module
from gateway.observers.reporter import MOST_LEFT, WRITES, Activities, RecentFailures, Reporter
from shared.bus import ReportWriter
from shared.errors import BusUnavailable
from shared.reports import Activity, decode_activity
from shared.routes.route import Route
from tests.shared.samples import make_sid


class NoFeed:
    table = None
    lag_seconds = 0.0


class FakeReportStore:
    """Accepts the writes; fails or hangs if a test says so."""

    def __init__(self) -> None:
        self.reports = 0
        self.parts: list[Mapping[str, bytes]] = []
        self.fails = False
        self.hangs = False
        self.left = False

    async def write(self, report: bytes) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise BusUnavailable("gone")
        self.reports += 1

    async def write_activities(self, activities: Mapping[str, bytes]) -> None:
        if self.fails:
            raise BusUnavailable("gone")
        self.parts.append(activities)

    async def leave(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.left = True

    def take(self) -> dict[str, Activity]:
        """Return the writes since the last call."""
        found: dict[str, Activity] = {}
        for part in self.parts:
            for sid, raw in part.items():
                activity = decode_activity(raw)
                assert activity is not None
                found[sid] = activity
        self.parts.clear()
        return found


class ReporterRig:
    def __init__(self) -> None:
        self.now = 1000.0
        self.activities = Activities()
        self.written = FakeReportStore()
        self.reporter = Reporter(
            writer=cast(ReportWriter, self.written),
            follower=cast(Any, NoFeed()),
            activities=self.activities,
            failures=RecentFailures(wall=lambda: self.now),
            version="1",
            wall=lambda: self.now,
        )

    def attach(self, number: int, sub: str | None = "ada") -> AccessRight:
        sid = make_sid(number)
        route = cast(Route, type("Route", (), {"sid": sid, "hosts": ("h",), "expires_at": None})())
        grant = None if sub is None else Grant(sid, "j", "k", sub, "control", 0.0, 9e9)
        right = AccessRight(route=route, host="h", grant=grant)
        self.activities.attached("terminal", right)
        return right

    def leave(self, right: AccessRight) -> None:
        self.activities.detached("terminal", right, None)

    async def turn(self, seconds: float = 2.0) -> dict[str, Activity]:
        self.now += seconds
        await self.reporter.report_once()
        return self.written.take()


@pytest.fixture
def bench() -> ReporterRig:
    return ReporterRig()


async def test_only_changed_activity_is_reported(bench: ReporterRig) -> None:
    right = bench.attach(1)
    (report,) = (await bench.turn()).values()
    assert (report.subs, report.last_input_at, report.last_output_at) == (("ada",), None, None)
    assert await bench.turn() == {}
    activity = right.activity
    assert activity is not None
    activity.up, activity.down, activity.input = 5, 7, True
    (report,) = (await bench.turn()).values()
    assert (report.last_input_at, report.last_output_at) == (1000.0, 1000.0)
    assert (report.bytes_in, report.bytes_out) == (5, 7)
    # Within the same ten seconds there is nothing new to report.
    activity.down, activity.input = 100, True
    assert await bench.turn(1.0) == {}
    activity.down += 1
    (report,) = (await bench.turn(10.0)).values()
    assert report.last_output_at == 1010.0
    assert report.bytes_out == 101


async def test_a_departed_user_is_reported_and_then_forgotten(bench: ReporterRig) -> None:
    ada, bob, other = bench.attach(1), bench.attach(1, "bob"), bench.attach(1, None)
    (report,) = (await bench.turn()).values()
    assert report.subs == ("ada", "bob")
    bench.leave(ada)
    bench.leave(other)
    (report,) = (await bench.turn()).values()
    assert report.subs == ("bob",)
    bench.leave(bob)
    (report,) = (await bench.turn()).values()
    assert report.subs == ()
    assert len(bench.activities) == 0


async def test_an_idle_connected_user_is_not_forgotten(bench: ReporterRig) -> None:
    bench.attach(1)
    assert len(await bench.turn()) == 1
    assert await bench.turn(1700.0) == {}
    assert len(await bench.turn(200.0)) == 1


async def test_a_redis_outage_loses_no_report(bench: ReporterRig) -> None:
    rights = [bench.attach(number) for number in range(5)]
    bench.written.fails = True
    assert await bench.turn() == {}
    bench.leave(rights[0])
    assert await bench.turn() == {}
    assert bench.reporter.skipped == 2
    bench.written.fails = False
    report = await bench.turn()
    assert len(report) == 5
    assert report[make_sid(0)].subs == ()


async def test_refused_reports_are_a_problem_until_one_is_written(
    bench: ReporterRig, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.turn()
    assert list(bench.reporter.problems) == []
    bench.written.fails = True
    await bench.turn()
    await bench.turn()
    assert list(bench.reporter.problems) == ["reports cannot be written to Redis: gone"]
    (warning,) = caplog.records
    assert (warning.levelname, warning.message) == ("WARNING", "cannot write reports to Redis")
    bench.written.fails = False
    await bench.turn()
    assert list(bench.reporter.problems) == []


async def test_a_hanging_redis_costs_one_reporting_turn(
    bench: ReporterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    bench.attach(1)
    bench.written.hangs = True
    async with asyncio.timeout(30):
        assert await bench.turn() == {}
    assert bench.reporter.skipped == 1
    bench.written.hangs = False
    assert len(await bench.turn()) == 1


async def test_each_turn_writes_a_bounded_part_and_all_sessions_are_reported(
    bench: ReporterRig,
) -> None:
    count = 2 * WRITES + 50
    for number in range(count):
        bench.attach(number)
    sizes = [len(await bench.turn()) for _ in range(4)]
    assert sizes == [WRITES, WRITES, 50, 0]
    assert bench.reporter.written == count


async def test_a_hundred_thousand_sessions_do_not_block_the_loop(bench: ReporterRig) -> None:
    for number in range(100_000):
        bench.attach(number)
    longest, last, going = 0.0, time.thread_time(), True

    async def watch() -> None:
        nonlocal longest, last
        while going:
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await bench.turn()
    going = False
    await watching
    # 100,000 at once would take a quarter of a second here. The bound is generous, as machines
    # differ.
    assert longest < 0.12


async def test_the_number_of_unreported_sessions_is_bounded(bench: ReporterRig) -> None:
    bench.written.fails = True
    for number in range(MOST_LEFT + 100):
        bench.leave(bench.attach(number))
    await bench.turn()
    assert len(bench.activities) == MOST_LEFT


async def test_a_watched_start_is_reported_every_ten_seconds(bench: ReporterRig) -> None:
    sid = make_sid(1)
    reported = []
    for _ in range(10):
        bench.activities.waiting(sid, bench.now)
        reported += [activity.waiting_at for activity in (await bench.turn(1.0)).values()]
    assert reported == [1000.0]
    bench.activities.waiting(sid, bench.now)
    (activity,) = (await bench.turn()).values()
    assert (activity.waiting_at, activity.subs) == (1010.0, ())
    await bench.turn()
    assert len(bench.activities) == 0


async def test_at_shutdown_the_last_activity_is_reported_and_the_gateways_report_removed(
    bench: ReporterRig,
) -> None:
    reporting = asyncio.create_task(bench.reporter.run())
    await asyncio.sleep(0)
    bench.leave(bench.attach(1))
    reporting.cancel()
    await asyncio.wait([reporting])
    assert reporting.cancelled()
    assert bench.written.left
    assert list(bench.written.take()) == [make_sid(1)]


async def test_a_hanging_redis_does_not_delay_shutdown(
    bench: ReporterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.01)
    bench.written.hangs = True
    reporting = asyncio.create_task(bench.reporter.run())
    await asyncio.sleep(0)
    reporting.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([reporting])
    assert reporting.cancelled()
