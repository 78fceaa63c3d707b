"""Tests the table holder without Redis: events in order, and replacement by a newer table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from gateway.bus.catch_up import release
from gateway.bus.head_policy import NOT_SIGNED, HeadPolicy, accept_unsigned
from gateway.bus.holder import RouteTableHolder
from gateway.bus.repairer import load_table
from gateway.core.bus_state import Bus, BusClock
from shared.errors import SnapshotRefused
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from tests.gateway.bus.following import ONE, TWO, sid_of
from tests.gateway.bus.leading import KEY, NOW, Leader, verifier

THREE = sid_of(3)
DAY = 86400.0


class Holding:
    """A holder, its clocks, and its notifications.

    Args:
        signs: The holder accepts only data that the controller signed.
    """

    def __init__(self, *, signs: bool = False) -> None:
        self.wall, self.uptime = NOW, 50.0
        self.changes: list[tuple[str, ...] | None] = []
        self.closed = 0
        self.clock = BusClock(bus_grace_seconds=60, controller_grace_seconds=60)
        policy = HeadPolicy(
            verifier(KEY),
            wall=lambda: self.wall,
            monotonic=lambda: self.uptime,
            max_age_seconds=300.0,
        )
        self.holder = RouteTableHolder(
            clock=self.clock,
            monotonic=lambda: self.uptime,
            wall=lambda: self.wall,
            on_change=self._changed,
            on_closed=self._closed,
            policy=policy if signs else accept_unsigned(),
        )
        self.clock.subscribed(self.uptime)

    def _changed(self, sids: Iterable[str] | None) -> None:
        self.changes.append(None if sids is None else tuple(sids))

    def _closed(self) -> None:
        self.closed += 1

    @property
    def table(self) -> RouteTable:
        assert self.holder.table is not None
        return self.holder.table

    def is_behind(self) -> bool:
        return self.holder.is_behind

    def dialling(self) -> bool:
        return self.holder.dialling

    def doubt(self) -> str | None:
        return self.holder.unserved_reason

    async def load(self, leader: Leader) -> RouteTable:
        """Return the current table of *leader*, read and checked."""
        policy = self.holder.policy
        said = policy.verify_head(leader.head, self.holder.table)
        return await load_table(leader.snapshot, policy.reader_for(said, RouteReader()), said)

    async def adopt(self, leader: Leader) -> None:
        """Put that table into use, as if read right now."""
        self.holder.adopt(await self.load(leader), read_at=self.uptime)

    def hear(self, *events: Any) -> None:
        """Deliver *events* to the holder."""
        for event in events:
            self.holder.take(event if isinstance(event, bytes) else event.encode())

    async def requests_poll(self) -> bool:
        """Return whether a head poll is requested, and begin that poll."""
        waits = asyncio.create_task(self.holder.catch_up.look_requested_within(60))
        for _ in range(3):
            await asyncio.sleep(0)
        asked = waits.done()
        waits.cancel()
        self.holder.catch_up.begin_look()
        return asked


async def holding(leader: Leader, *, signs: bool = False) -> Holding:
    """Return a holder with the table of *leader* in use."""
    h = Holding(signs=signs)
    await h.adopt(leader)
    h.changes.clear()
    return h


# Events


async def test_the_next_events_are_applied_and_their_sessions_reported() -> None:
    leader = await Leader().begin(ONE)
    h = await holding(leader)
    assert h.holder.lag_seconds == 0.0
    h.wall = NOW + 2.5
    h.hear(leader.upsert(TWO))
    assert h.holder.lag_seconds == 2.5
    h.hear(leader.remove(ONE), leader.revoke(sid=TWO, sub="ada"), leader.revoke(kid="k1"))
    assert h.changes == [(TWO,), (ONE,), (TWO,), None]
    assert set(h.table) == {TWO}
    assert set(h.table.revocations) == set(leader.revoked)
    assert h.holder.noted == {"applied": 4, "snapshot": 1}
    # A publisher's clock that is ahead does not make it negative.
    h.hear(leader.upsert(ONE, at=NOW + 60))
    assert h.holder.lag_seconds == 0.0
    h.wall = NOW + 63
    h.hear(leader.upsert(ONE, at=None))
    assert h.holder.lag_seconds == 0.0
    assert not await h.requests_poll()


async def test_a_gap_polls_the_head_and_changes_no_route() -> None:
    leader = await Leader().begin(ONE)
    h = await holding(leader)
    leader.upsert(TWO)
    h.hear(b"{", leader.upsert(THREE))
    assert h.changes == []
    assert set(h.table) == {ONE}
    assert h.holder.noted["gap"] == 1
    assert await h.requests_poll()


async def test_a_malformed_event_polls_the_head_also_before_the_first_table() -> None:
    h = Holding()
    h.hear(b"{")
    assert h.holder.noted == {"malformed": 1}
    assert await h.requests_poll()
    h.hear((await Leader().begin()).upsert(ONE))
    assert h.holder.noted == {"malformed": 1}
    assert not await h.requests_poll()


async def test_a_wait_for_a_head_ends_with_the_event_that_reaches_it() -> None:
    leader = await Leader().begin(ONE)
    h = await holding(leader)
    event = leader.upsert(TWO)
    catch_up = h.holder.catch_up
    waits = catch_up.caught_up()
    catch_up.aim_at(leader.head, read_at=52.0, waiting=catch_up.begin_look())
    assert h.is_behind()
    h.hear(event)
    assert waits.done()
    assert not h.is_behind()
    # The head was read at that time, and then the bus was good.
    h.uptime = 57.0
    assert h.holder.bus is Bus.FOLLOWING


@pytest.mark.parametrize("ahead", ["wall", "controller"])
async def test_a_clock_that_jumps_ahead_restores_no_revoked_grant(ahead: str) -> None:
    leader = await Leader().begin(ONE, revoked={"jti:old": NOW + 10, "jti:t": NOW + DAY})
    h = await holding(leader)
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:old", "jti:t"}
    h.hear(leader.beat(at=NOW + 2))
    h.wall = NOW + 2
    if ahead == "wall":
        h.wall += 30 * DAY
    else:
        h.hear(leader.beat(at=NOW + 30 * DAY))
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:old", "jti:t"}
    h.wall = NOW + 12
    h.hear(leader.beat(at=NOW + 12))
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:t"}


async def test_without_event_times_only_the_gateways_clock_is_used() -> None:
    leader = await Leader().begin(ONE, revoked={"jti:old": NOW + 10, "jti:t": NOW + DAY})
    h = await holding(leader)
    h.wall = NOW + 12
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:t"}


async def test_the_time_of_an_applied_event_counts_and_not_that_of_one_out_of_order() -> None:
    leader = await Leader().begin(ONE, revoked={"jti:old": NOW + 10, "jti:t": NOW + DAY})
    h = await holding(leader)
    h.wall = NOW + 30 * DAY
    h.hear(leader.upsert(TWO, at=NOW + 2))
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:old", "jti:t"}
    leader.upsert(THREE)
    h.hear(leader.upsert(TWO, at=NOW + 12))
    h.holder.prune()
    assert set(h.table.revocations) == {"jti:old", "jti:t"}


async def test_an_ended_session_is_forgotten_once_no_grant_of_it_can_be_valid() -> None:
    leader = await Leader(KEY).begin(ONE, TWO)
    h = await holding(leader, signs=True)
    h.hear(leader.remove(ONE))
    h.holder.prune()
    assert h.holder.policy.has_ended(ONE)
    h.wall = NOW + 2 * DAY
    h.hear(leader.beat(at=h.wall))
    h.holder.prune()
    h.wall = NOW
    assert not h.holder.policy.has_ended(ONE)


async def test_a_revocation_takes_effect_at_any_sequence_number() -> None:
    leader = await Leader().begin(ONE)
    h = await holding(leader)
    leader.upsert(TWO)
    of_one, of_key = leader.revoke(sid=ONE), leader.revoke(kid="k1")
    h.hear(of_one, of_key)
    assert h.changes == [(ONE,), None]
    assert set(h.table.revocations) == set(leader.revoked)
    # A repeated revocation is no change, and one of another epoch does not count here.
    h.hear(of_one, msgspec.structs.replace(of_key, epoch="e0", kid="k2"))
    assert len(h.changes) == 2
    assert set(h.table.revocations) == set(leader.revoked)
    assert h.holder.noted["early"] == 2
    # In its place in the sequence, the revocation is an ordinary event, and not early.
    second = await holding(await Leader().begin(ONE))
    second.hear((await Leader().begin(ONE)).revoke(sid=ONE))
    assert second.changes == [(ONE,)]
    assert (second.holder.noted["early"], second.holder.noted["applied"]) == (0, 1)


async def test_under_signed_heads_an_early_revocation_needs_its_own_signature() -> None:
    leader = await Leader(KEY).begin(ONE)
    h = await holding(leader, signs=True)
    leader.upsert(TWO)
    event = leader.revoke(sid=ONE)
    h.hear(msgspec.structs.replace(event, proof=None))
    assert h.changes == []
    assert not h.table.revocations
    assert h.holder.noted["unproven"] == 1
    h.hear(event)
    assert h.changes == [(ONE,)]
    assert h.holder.noted["early"] == 1


async def test_an_event_that_differs_from_the_signed_state_polls_the_head() -> None:
    leader = await Leader(KEY).begin(ONE)
    h = await holding(leader, signs=True)
    event = leader.upsert(TWO)
    h.hear(msgspec.structs.replace(event, head="a.b.c"))
    assert set(h.table) == {ONE}
    assert h.holder.noted == {"snapshot": 1, "unproven": 1, "gap": 1}
    assert await h.requests_poll()
    # Events from the log are checked too, and at once.
    h.holder.advance_by(event, h.table, from_log=True)
    assert set(h.table) == {ONE, TWO}


@pytest.mark.parametrize("signs", [False, True])
async def test_events_are_a_sign_of_life_unless_heartbeats_are_signed(
    signs: bool,
) -> None:
    leader = await Leader(KEY if signs else None).begin(ONE)
    h = await holding(leader, signs=signs)
    h.uptime += 60
    assert h.dialling()
    stranger = await Leader().begin(ONE)
    stranger.epoch = "e0"
    h.hear(stranger.beat())
    h.uptime += 1
    assert not h.dialling()
    h.hear(msgspec.structs.replace(leader.beat(), head=msgspec.UNSET))
    assert h.dialling() is not signs
    h.uptime, h.wall = h.uptime + 1, NOW + 62
    h.hear(leader.beat(at=NOW + 61))
    assert h.dialling()


async def test_an_unknown_event_reloads_the_table_at_most_twice_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = await Leader().begin(ONE)
    h = await holding(leader)
    catch_up = h.holder.catch_up

    def pass_one() -> bool:
        """Deliver *one*; return whether the holder asks for a snapshot."""
        seq = h.table.seq + 1
        strange = {"v": 2, "epoch": "e1", "seq": seq, "type": "RouteNarrowed"}
        h.hear(msgspec.json.encode(strange))
        assert h.table.seq == seq
        whole = catch_up.wants_snapshot
        assert h.is_behind() is whole
        catch_up.wants_snapshot = False
        return whole

    assert pass_one()
    async with asyncio.timeout(5):
        await catch_up.repair_requested()
    h.uptime = 79.9
    assert not pass_one()
    h.uptime = 80.0
    assert pass_one()
    assert not pass_one()
    assert h.holder.noted["unknown"] == h.holder.noted["applied"] == 4
    assert h.changes == []
    said = [one for one in caplog.records if "unknown version" in one.message]
    assert [vars(one)["type"] for one in said] == ["RouteNarrowed"] * 2


# Sign-outs


async def test_a_repeated_sign_out_is_applied_once() -> None:
    h = await holding(await Leader().begin(ONE))
    for _ in range(2):
        h.holder.end_grant(ONE, "t1")
        assert h.changes == [(ONE,)]
    assert h.table.revocations == {"jti:t1": NOW + DAY}
    assert h.holder.noted["signed_out"] == 1


async def test_a_bounded_number_of_sign_outs_is_kept_before_the_first_table() -> None:
    h, leader = Holding(), await Leader().begin(ONE)
    for number in range(1001):
        h.holder.end_grant(ONE, f"t{number}")
    assert h.changes == []
    await h.adopt(leader)
    assert len(h.table.revocations) == h.holder.noted["signed_out"] == 1000
    assert "jti:t1000" in h.table.revocations


# Another table


async def test_an_older_table_is_refused_and_a_new_epoch_restores_no_grant() -> None:
    leader = await Leader().begin(ONE, TWO)
    h = await holding(leader)
    old = await h.load(leader)
    h.hear(leader.revoke(sid=ONE))
    with pytest.raises(SnapshotRefused, match="the snapshot is at 0, the table at 1"):
        h.holder.adopt(old, read_at=h.uptime)
    h.changes.clear()
    await h.adopt(await Leader(epoch="e2", term=2).begin(TWO))
    assert h.changes == [None]
    assert set(h.table) == {TWO}
    assert h.table.revocations == {f"all:{ONE}": NOW + DAY}
    assert h.holder.noted["snapshot"] == 2


async def test_a_signed_table_replaces_any_unsigned_table() -> None:
    h = Holding(signs=True)
    plain = await Leader(epoch="e9", term=9).begin(ONE, revoked={"kid:k1": NOW + DAY})
    await h.adopt(plain)
    await h.adopt(await Leader(KEY).begin(TWO))
    assert set(h.table) == {TWO}
    assert not h.table.revocations
    # Of two signed tables, the later one counts.
    older = await h.load(await Leader(KEY, epoch="e0", term=0).begin(ONE))
    with pytest.raises(SnapshotRefused):
        h.holder.adopt(older, read_at=50.0)
    await h.adopt(await Leader(KEY, epoch="e2", term=2).begin(ONE))
    assert set(h.table) == {ONE}


async def test_a_signed_table_is_a_sign_of_life_of_its_signing_time() -> None:
    h = Holding(signs=True)
    h.wall = NOW + 10
    await h.adopt(await Leader(KEY).begin(ONE))
    h.uptime = 100.0
    assert h.dialling()
    h.uptime = 100.1
    assert not h.dialling()


async def test_a_table_with_a_later_sequence_is_a_sign_of_life() -> None:
    h, leader = Holding(), await Leader().begin(ONE)
    h.uptime += 61
    assert not h.dialling()
    await h.adopt(leader)
    assert h.dialling()
    h.uptime += 61
    await h.adopt(leader)
    assert not h.dialling()
    leader.upsert(TWO)
    await h.adopt(leader)
    assert h.dialling()


async def test_a_table_is_current_as_of_its_reading() -> None:
    h = Holding()
    h.uptime = 52.0
    h.holder.adopt(await h.load(await Leader().begin(ONE)), read_at=51.0)
    for now, bus in ((56.0, Bus.FOLLOWING), (56.1, Bus.LOST), (116.0, Bus.LOST), (117, Bus.CLOSED)):
        h.uptime = now
        assert h.holder.bus is bus


async def test_a_table_behind_the_head_polls_it_again() -> None:
    h, leader = Holding(), await Leader().begin(ONE)
    table = await h.load(leader)
    leader.upsert(TWO)
    h.holder.catch_up.aim_at(leader.head, read_at=50.0)
    h.holder.adopt(table, read_at=50.0)
    assert await h.requests_poll()
    other = await holding(leader)
    other.holder.catch_up.aim_at(leader.head, read_at=50.0)
    await other.adopt(leader)
    assert not await other.requests_poll()


async def test_events_received_during_a_table_load_are_applied_to_it() -> None:
    h, leader = Holding(), await Leader().begin(ONE)
    with h.holder.buffering_events():
        leader.upsert(TWO)
        table = await h.load(leader)
        h.hear(leader.upsert(THREE), leader.remove(ONE))
        stranger = await Leader().begin()
        stranger.epoch, stranger.seq = "e0", leader.seq
        h.hear(stranger.upsert(ONE))
        h.holder.adopt(table, read_at=50.0)
    assert (set(h.table), h.table.seq) == ({TWO, THREE}, 3)
    # Later events are for the table in use alone.
    third = await h.load(leader)
    h.hear(leader.upsert(ONE))
    with pytest.raises(SnapshotRefused):
        h.holder.adopt(third, read_at=50.0)
    assert set(h.table) == {ONE, TWO, THREE}


async def test_the_number_of_signed_events_verified_at_once_is_bounded() -> None:
    for signs, applied in ((False, 100), (True, 64)):
        leader = await Leader(KEY if signs else None).begin(ONE)
        h = Holding(signs=signs)
        table = await h.load(leader)
        with h.holder.buffering_events():
            h.hear(*(leader.upsert(sid_of(number)) for number in range(100, 200)))
            h.holder.adopt(table, read_at=50.0)
        assert h.table.seq == applied


async def test_a_forged_event_stops_the_verification_of_later_ones() -> None:
    leader = await Leader(KEY).begin(ONE)
    h = await holding(leader, signs=True)
    table = await h.load(leader)
    beat, first, second = leader.beat(), leader.upsert(TWO), leader.upsert(THREE)
    # Events are not checked for a moment, but these are for the table that is being loaded.
    h.hear(msgspec.structs.replace(first, head="a.b.c"))
    with h.holder.buffering_events():
        h.hear(msgspec.structs.replace(beat, head="a.b.c"), first)
        h.hear(msgspec.structs.replace(second, route=msgspec.Raw(b"{}")), second)
        h.holder.adopt(table, read_at=50.0)
    assert (set(h.table), h.table.seq) == ({ONE, TWO}, 1)


# What is allowed, and what waits


async def test_the_bus_state_follows_from_the_table_and_its_age() -> None:
    h = Holding()

    def may(now: float) -> tuple[bool, bool, bool]:
        """Return whether the gateway serves, opens sessions, and has to poll first."""
        h.uptime = now
        may = h.holder.serving, h.holder.opening, h.holder.stale
        usable = may[0] and not may[2]
        assert h.holder.usable_table is (h.holder.table if usable else None)
        return may

    h.clock.head_confirmed(50.0)
    h.clock.head_polled(50.0)
    assert may(51.0) == may(60.0) == (False, False, False)
    assert (h.holder.last_error, h.holder.lag_seconds) == (None, 0.0)
    h.holder.last_error = "away"
    assert h.holder.last_error == "away"
    h.holder.adopt(await h.load(await Leader().begin(ONE)), read_at=50.0)
    assert may(54.0) == (True, True, False)
    assert may(55.0) == (True, True, True)
    assert may(56.0) == (True, False, True)
    h.clock.head_polled(115.0)
    assert may(115.0) == (True, False, False)
    assert may(115.1) == (False, False, False)


async def test_a_repair_waits_for_the_head_and_longer_after_a_suspension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.bus.holder.REPAIR_SECONDS", 0.02)
    monkeypatch.setattr("gateway.bus.holder.WAKE_SECONDS", 600.0)
    h = await holding(await Leader().begin(ONE))
    h.clock.head_polled(50.0)
    async with asyncio.timeout(20):
        await h.holder.repair()
        assert len(h.holder.catch_up.begin_look()) == 1
        # Suspended while it waits: the earlier answer of Redis counts no more.
        waits = asyncio.create_task(h.holder.repair())
        await asyncio.sleep(0)
        assert len(h.holder.catch_up.begin_look()) == 1
        h.uptime = 60.0
        while not (asked := h.holder.catch_up.begin_look()):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert not waits.done()
        release(asked)
        await waits
        # Suspended before the wait: the wait begins at once.
        waits = asyncio.create_task(h.holder.repair())
        await asyncio.sleep(0.05)
        assert not waits.done()
        release(h.holder.catch_up.begin_look())
        await waits
    assert h.holder.catch_up.begin_look() == []


# Metrics and descriptions


async def test_with_route_keys_unreadable_routes_are_suspect() -> None:
    h = Holding(signs=True)
    assert h.doubt() is None
    good = await Leader().begin(ONE)
    await h.adopt(good)
    assert h.doubt() is None
    bad = await Leader(epoch="e2", term=2).begin(ONE, kind="later")
    await h.adopt(bad)
    assert h.doubt() == NOT_SIGNED
    await h.adopt(await Leader(KEY, epoch="e3", term=3).begin(ONE, kind="later"))
    assert h.table.unreadable == 1
    assert h.doubt() is None
    believing = await holding(bad)
    assert believing.doubt() is None


async def test_each_change_of_the_bus_state_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    h = Holding()
    assert h.holder.closing_at(50.0) == float("inf")
    h.holder.note_state()
    await h.adopt(await Leader().begin(ONE))
    assert "bus state: following" in caplog.text
    assert h.holder.closing_at(50.0) == 115.0
    assert h.holder.closing_at(120.0) == 120.0
    for now in (50.0, 56.0, 57.0, 116.0, 117.0):
        h.uptime = now
        h.holder.note_state()
    assert h.closed == 1
    assert h.holder.closing_at(118.0) == float("inf")
    h.clock.head_confirmed(118.0)
    h.uptime = 118.0
    h.holder.note_state()
    assert h.holder.closing_at(118.0) == 183.0
    said = [(one.levelname, one.message) for one in caplog.records if "bus state" in one.message]
    assert said == [
        ("INFO", "bus state: following (was starting)"),
        ("WARNING", "bus state: lost (was following)"),
        ("WARNING", "bus state: closed (was lost)"),
        ("INFO", "bus state: following (was closed)"),
    ]
    assert h.closed == 1
