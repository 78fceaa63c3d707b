"""Tests how the holder of the route table applies events and sign-outs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.core.bus_state import Bus
from tests.gateway.bus.following import ONE, TWO
from tests.gateway.bus.holding import DAY, THREE, Holding, holding
from tests.gateway.bus.leading import KEY, NOW, Leader

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
