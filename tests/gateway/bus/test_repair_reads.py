"""Tests which reads a repair makes, and when, with a reader in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from gateway.bus import repairer
from gateway.bus.repairer import Repairer
from shared.bus import LOG_PART, BusReader, LogPart, Snapshot
from shared.errors import BusUnavailable
from shared.events import Event, Head
from shared.routes.route import RouteReader
from tests.gateway.bus.following import ONE, TWO, sid_of
from tests.gateway.bus.holding import Holding, holding
from tests.gateway.bus.leading import KEY, Leader
from tests.shared.samples import make_sid
from tests.waiting import until

THREE = sid_of(3)


class Reader:
    """Reads what *leader* has published, and records the requests."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.log: list[bytes] = []
        self.parts: list[tuple[int, int]] = []
        self.snapshots = 0
        self.tables = 0
        """Of how many snapshots more than the head was read."""
        self.fails: list[Exception] = []
        self.changed: Callable[[Snapshot], Snapshot | None] = lambda snapshot: snapshot

    def keep(self, *events: Event) -> None:
        """Put *events* into the log."""
        self.log += [cast(Any, event).encode() for event in events]

    async def log_after(self, seq: int, *, most: int = LOG_PART) -> LogPart:
        self.parts.append((seq, most))
        if self.fails:
            raise self.fails.pop(0)
        after = [raw for raw in self.log if msgspec.json.decode(raw)["seq"] > seq]
        return LogPart(self.leader.head, tuple(after[:most]))

    async def snapshot(self, believe: Callable[[Head], None]) -> Snapshot | None:
        self.snapshots += 1
        if self.fails:
            raise self.fails.pop(0)
        found = self.changed(self.leader.snapshot)
        if found is not None:
            believe(found.head)
            self.tables += 1
        return found


class Repairing:
    """A running repairer, its reader, and the delays that it requested."""

    def __init__(self, h: Holding, reader: Reader) -> None:
        self.h, self.reader = h, reader
        self.random = 0.0
        self.waited: list[float] = []
        self._reached_within = h.holder.catch_up.reached_within
        h.holder.catch_up.reached_within = self._wait  # type: ignore[method-assign]  # noted, and at most a moment
        self.repairer = Repairer(
            holder=h.holder,
            reader=cast(BusReader, reader),
            routes=RouteReader(),
            random=lambda: self.random,
        )

    async def _wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return await self._reached_within(min(seconds, 0.02))

    def request(self, *, awaited: bool = False) -> None:
        """Mark the table as behind, and request a repair."""
        catch_up = self.h.holder.catch_up
        waiting = [catch_up.caught_up()] if awaited else []
        catch_up.begin_look()
        catch_up.aim_at(self.reader.leader.head, read_at=self.h.uptime, waiting=waiting)
        if not self.h.holder.advance():
            catch_up.request_repair()

    async def repaired(self) -> None:
        """Request a repair, and wait for it."""
        self.request()
        await until(lambda: not self.h.holder.is_behind)


@asynccontextmanager
async def repairing(
    key: Any = None, *sids: str, table: bool = True
) -> AsyncIterator[tuple[Repairing, Leader]]:
    """Run the repairer of a table, which exists already or does not."""
    leader = await Leader(key).begin(*sids)
    h = await holding(leader, signs=key is not None) if table else Holding(signs=key is not None)
    one = Repairing(h, Reader(leader))
    running = asyncio.create_task(one.repairer.run())
    yield one, leader
    running.cancel()
    await asyncio.wait([running])


# The log


async def test_the_first_table_is_loaded_at_once() -> None:
    async with repairing(None, ONE, table=False) as (one, _):
        await one.repaired()
        assert set(one.h.table) == {ONE}
        assert one.waited == [0.02, 0.0]
        assert one.reader.parts == []


async def test_a_gap_waits_for_events_in_flight() -> None:
    async with repairing(None, ONE) as (one, leader):
        event = leader.upsert(TWO)
        one.request()
        await asyncio.sleep(0)
        one.h.hear(event)
        await asyncio.sleep(0.1)
        assert (one.reader.parts, one.reader.snapshots) == ([], 0)
        assert one.waited == [0.02]


@pytest.mark.parametrize(("key", "most"), [(None, 250), (KEY, 64)])
async def test_the_log_is_read_in_pages_between_turns_of_the_loop(key: Any, most: int) -> None:
    async with repairing(key, ONE) as (one, leader):
        one.reader.keep(*(leader.upsert(sid_of(number)) for number in range(most + 10)))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += len(one.reader.parts) == 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await one.repaired()
        beside.cancel()
        assert one.reader.parts == [(0, most), (most, most)]
        assert turns > 0
        assert one.h.table.seq == most + 10
        assert one.h.holder.noted["log"] == most + 10
        assert one.reader.snapshots == 0


@pytest.mark.parametrize(("behind", "whole"), [(4096, False), (4097, True)])
async def test_a_table_far_behind_is_reloaded(behind: int, whole: bool) -> None:
    async with repairing(None, ONE) as (one, leader):
        # The distance to the head decides, not the position.
        one.h.table.seq = leader.seq = 9000
        one.reader.keep(*(leader.revoke(kid="k1") for _ in range(behind)))
        await one.repaired()
        assert one.reader.snapshots == whole
        assert bool(one.reader.parts) is not whole


async def test_log_entries_already_received_as_events_are_skipped() -> None:
    async with repairing(None, ONE) as (one, leader):
        first, second = leader.upsert(TWO), leader.upsert(THREE)
        one.reader.keep(first, second)
        read = one.reader.log_after

        async def late(seq: int, *, most: int = LOG_PART) -> LogPart:
            part = await read(seq, most=most)
            one.h.hear(first)
            return part

        one.reader.log_after = late  # type: ignore[method-assign]  # only later
        await one.repaired()
        assert set(one.h.table) == {ONE, TWO, THREE}
        assert one.h.holder.noted["log"] == 1
        await asyncio.sleep(0.05)
        # Nothing is left to read, so the repairer does not wait for a snapshot turn.
        assert (one.reader.snapshots, one.waited) == (0, [0.02])


async def test_a_page_of_known_entries_continues_with_the_next() -> None:
    async with repairing(None, ONE) as (one, leader):
        events = [leader.upsert(sid_of(number)) for number in range(252)]
        one.reader.keep(*events)
        read = one.reader.log_after

        async def late(seq: int, *, most: int = LOG_PART) -> LogPart:
            part = await read(seq, most=most)
            if seq == 0:
                one.h.hear(*events[:250])
            return part

        one.reader.log_after = late  # type: ignore[method-assign]  # only later
        await one.repaired()
        assert one.h.holder.noted["log"] == 2
        assert one.reader.snapshots == 0


@pytest.mark.parametrize("log", ["empty", "malformed", "another epoch's", "a gap", "away", "slow"])
async def test_a_log_without_the_next_event_reloads_the_table(log: str) -> None:
    async with repairing(None, ONE) as (one, leader):
        first, second = leader.upsert(TWO), leader.upsert(THREE)
        match log:
            case "malformed":
                one.reader.log = [b'{"seq":1}']
            case "another epoch's":
                one.reader.keep(msgspec.structs.replace(first, epoch="e0"), second)
            case "a gap":
                one.reader.keep(second)
            case "away":
                one.reader.fails = [BusUnavailable("away")]
            case "slow":
                one.reader.fails = [TimeoutError()]
        await one.repaired()
        assert set(one.h.table) == {ONE, TWO, THREE}
        assert (len(one.reader.parts), one.reader.snapshots) == (1, 1)
        assert one.h.holder.noted["log"] == 0


async def test_the_log_of_another_epoch_is_not_read() -> None:
    async with repairing(None, ONE) as (one, _):
        one.reader.leader = await Leader(epoch="e2", term=2).begin(TWO)
        await one.repaired()
        assert set(one.h.table) == {TWO}
        assert one.reader.parts == []


async def test_events_of_the_log_are_verified_even_after_a_forged_one() -> None:
    async with repairing(KEY, ONE) as (one, leader):
        event = leader.upsert(TWO)
        one.h.hear(msgspec.structs.replace(event, head="a.b.c"))
        one.reader.keep(event)
        await one.repaired()
        assert one.h.holder.noted["log"] == 1
        assert one.reader.snapshots == 0


async def test_a_requested_reload_happens_once_at_any_sequence() -> None:
    async with repairing(None, ONE) as (one, leader):
        one.reader.keep(leader.upsert(TWO))
        one.h.holder.catch_up.request_repair(whole=True)
        await one.repaired()
        assert (one.reader.parts, one.reader.snapshots) == ([], 1)
        one.h.holder.catch_up.request_repair()
        await asyncio.sleep(0.1)
        assert one.reader.snapshots == 1


# The whole table


async def test_reloads_are_spread_over_gateways_unless_a_request_waits() -> None:
    async with repairing(None, ONE, TWO) as (one, _):
        one.random = 0.5
        one.reader.leader = await Leader(epoch="e2", term=2).begin(ONE)
        await one.repaired()
        assert one.waited == [0.02, 0.5 * 2 / 50_000]
        one.waited.clear()
        one.reader.leader = await Leader(epoch="e3", term=3).begin(ONE)
        one.request(awaited=True)
        await until(lambda: not one.h.holder.is_behind)
        assert one.waited == [0.02, 0.0]


async def test_events_received_during_a_reload_are_in_the_table() -> None:
    async with repairing(None, table=False) as (one, leader):
        before = leader.snapshot
        event = leader.upsert(ONE)

        def late(snapshot: Snapshot) -> Snapshot:
            one.h.hear(event)
            return before

        one.reader.changed = late
        await one.repaired()
        assert set(one.h.table) == {ONE}
        assert one.reader.snapshots == 1


async def test_a_reloaded_table_is_current_as_of_the_start_of_its_load() -> None:
    async with repairing(None, ONE, table=False) as (one, _):

        def slow(snapshot: Snapshot) -> Snapshot:
            one.h.uptime += 6
            return snapshot

        one.reader.changed = slow
        one.request()
        one.h.holder.catch_up.give_up()
        one.h.holder.catch_up.request_repair(whole=True)
        await until(lambda: one.h.holder.table is not None)
        assert not one.h.holder.opening


@pytest.mark.parametrize("why", ["away", "no head", "refused"])
async def test_a_failed_reload_is_repeated_at_the_next_request(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with repairing(None, ONE, table=False) as (one, _):
        match why:
            case "away":
                one.reader.fails = [BusUnavailable("away")]
            case "no head":
                one.reader.changed = lambda _: None
            case "refused":
                one.reader.changed = lambda found: Snapshot(found.head, {}, {})
        one.request()
        await until(lambda: one.reader.snapshots == 1)
        await asyncio.sleep(0.05)
        assert one.h.holder.table is None
        one.reader.changed = lambda found: found
        one.waited.clear()
        await one.repaired()
        assert set(one.h.table) == {ONE}
        # Only unsigned data makes the repairer wait.
        assert one.waited == [0.02, 0.0]
        assert one.h.holder.noted["snapshot_refused"] == (why == "refused")
        assert one.h.holder.noted["unproven"] == 0
        said = {
            "away": "cannot read a snapshot of the route table: away",
            "no head": "",
            "refused": "refused a snapshot",
        }
        assert said[why] in caplog.text


async def test_an_unsigned_table_is_read_with_backoff_until_it_changes() -> None:
    async with repairing(KEY, ONE, table=False) as (one, _):

        def touched(found: Snapshot) -> Snapshot:
            return Snapshot(found.head, {ONE: b"{}"}, {})

        one.reader.changed = touched
        pauses = []
        for count in range(1, 8):
            one.waited.clear()
            one.request()
            await until(lambda n=count: one.h.holder.noted["unproven"] == n)
            pauses += one.waited[2:]
        assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]
        assert one.h.holder.noted["snapshot_refused"] == 7
        # Another epoch resets the pause, and after its table is accepted, so does this one.
        one.reader.leader = await Leader(KEY, epoch="e2", term=2).begin(ONE)
        one.waited.clear()
        one.request()
        await until(lambda: one.h.holder.noted["unproven"] == 8)
        assert one.waited == [0.02, 0.0]
        one.reader.changed = lambda found: found
        await one.repaired()
        one.reader.changed = touched
        one.reader.leader.upsert(TWO)
        one.waited.clear()
        one.request()
        await until(lambda: one.h.holder.noted["unproven"] == 9)
        assert one.waited == [0.02, 0.0]


async def test_of_an_unsigned_table_only_the_head_is_read() -> None:
    async with repairing(KEY, ONE) as (one, _):
        one.reader.leader = await Leader(epoch="e2", term=2).begin(TWO)
        one.request()
        await until(lambda: one.h.holder.noted["unproven"] == 1)
        assert (one.reader.snapshots, one.reader.tables) == (1, 0)
        assert set(one.h.table) == {ONE}


async def test_a_session_missing_from_a_signed_table_has_ended() -> None:
    async with repairing(KEY, ONE, TWO) as (one, _):
        policy = one.h.holder.policy
        one.reader.leader = await Leader(KEY, epoch="e2", term=2).begin(TWO)
        await one.repaired()
        assert (policy.has_ended(ONE), policy.has_ended(TWO)) == (True, False)


class Turns:
    """Replaces asyncio, and records the turns of the loop."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self._happened.append("turn")
        await asyncio.sleep(seconds)


async def test_the_event_loop_is_not_blocked_while_many_sessions_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(repairer, "_LOOKED_UP_AT_ONCE", 2)
    async with repairing(KEY, *(make_sid(number) for number in range(10, 15))) as (one, _):
        policy = one.h.holder.policy
        monkeypatch.setattr(policy, "note_ended", lambda _sid: happened.append("ended"))
        monkeypatch.setattr(repairer, "asyncio", Turns(happened))
        one.reader.leader = await Leader(KEY, epoch="e2", term=2).begin(TWO)
        await one.repaired()
    assert "".join(one[0] for one in happened).strip("t") == "eeteete"


async def test_the_replaced_table_is_freed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(repairer, "_FREED_AT_ONCE", 2)
    async with repairing(None, *(make_sid(number) for number in range(10, 15))) as (one, _):
        old = one.h.table
        monkeypatch.setattr(repairer, "asyncio", Turns(happened))
        one.reader.leader = await Leader(epoch="e2", term=2).begin(TWO)
        await one.repaired()
        await until(lambda: len(old) == 0)
        assert set(one.h.table) == {TWO}
    assert happened == ["turn"] * 3


async def test_an_unsigned_table_ends_no_session() -> None:
    async with repairing(KEY, table=False) as (one, _):
        signed = one.reader.leader
        one.reader.leader = await Leader(epoch="e0").begin(ONE)
        await one.repaired()
        assert set(one.h.table) == {ONE}
        one.reader.leader = signed
        await one.repaired()
        assert set(one.h.table) == set()
        assert not one.h.holder.policy.has_ended(ONE)
