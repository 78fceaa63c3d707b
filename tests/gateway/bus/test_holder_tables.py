"""Tests how the holder replaces its table, and what it allows meanwhile."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from gateway.bus.catch_up import release
from gateway.bus.head_policy import NOT_SIGNED
from gateway.core.bus_state import Bus
from shared.errors import SnapshotRefused
from tests.gateway.bus.following import ONE, TWO, sid_of
from tests.gateway.bus.holding import DAY, THREE, Holding, holding
from tests.gateway.bus.leading import KEY, NOW, Leader

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


async def test_unknown_events_are_reloaded_unless_the_snapshot_is_later() -> None:
    for arrives_during_load in (False, True):
        h, leader = Holding(), await Leader().begin(ONE)
        with h.holder.buffering_events():
            if not arrives_during_load:
                leader.upsert(TWO)
            table = await h.load(leader)
            h.hear(msgspec.json.encode({"v": 2, "epoch": "e1", "seq": 1, "type": "RouteNarrowed"}))
            h.holder.adopt(table, read_at=50.0)
        assert h.table.seq == 1
        assert h.holder.reload_if_due() is arrives_during_load
        assert h.holder.catch_up.wants_snapshot is arrives_during_load
    # The read of the table may have passed one, too.
    h, leader = Holding(), await Leader().begin(ONE)
    h.holder.adopt(await h.load(leader), read_at=50.0, passed_unknown=True)
    assert h.holder.reload_if_due()


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
