"""Tests sign-outs: the leader handles each once, and ends only grants of live sessions."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from redis.asyncio import Redis

from controller.sessions import sign_outs as module
from controller.sessions.sign_outs import MOST_OF_SESSION, SignOutProcessor
from controller.store.database import Store
from controller.store.errors import LeadershipLost
from controller.store.instance import raise_term, read_sign_out_position
from controller.store.jobs.job_rows import insert_job
from controller.store.sessions.revocations import active_revocations
from controller.store.sessions.session_rows import Session, end_session, insert_session
from shared.audit import LOGGER
from shared.bus import Keys, SignOutReader, SignOutWriter
from tests.clock import Clock
from tests.controller.samples import make_record
from tests.shared.samples import make_sid

KEYS = Keys("test")
LIVE, OTHER, ENDED = make_sid(1), make_sid(2), make_sid(3)


class Leader:
    """A leader of the store."""

    def __init__(self, store: Store, redis: Redis, clock: Clock, term: int) -> None:
        self.published = 0
        self.taken: Counter[str] = Counter()
        self.asks = SignOutProcessor(
            store=store.fenced(term),
            reader=SignOutReader(redis, KEYS),
            clock=clock,
            publish=self._publish,
            count=lambda what: self.taken.update([what]),
        )

    def _publish(self) -> None:
        self.published += 1

    async def take_all(self) -> None:
        for _ in range(20):
            await self.asks.process_batch()


@pytest.fixture
async def lead(store: Store, redis: Redis, clock: Clock) -> Callable[[int], Leader]:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        for sid in (LIVE, OTHER, ENDED):
            await insert_session(
                transaction,
                Session(
                    sid=sid, job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
                    base_path="/", created_at=clock.now,
                ),
            )  # fmt: skip
        await end_session(transaction, ENDED, reason="ended", now=clock.now)
        await raise_term(transaction)
    return lambda term: Leader(store, redis, clock, term)


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = True
    yield caplog
    logger.level, logger.propagate = before


async def revoked(store: Store, clock: Clock) -> list[tuple[str | None, str | None]]:
    async with store.read() as transaction:
        found = await active_revocations(transaction, now=clock.now)
    assert all(one.sub is None and one.kid is None for one in found)
    return [(one.sid, one.jti) for one in found]


async def test_a_sign_out_is_revoked_published_and_recorded(
    store: Store,
    redis: Redis,
    clock: Clock,
    lead: Callable[[int], Leader],
    audit: pytest.LogCaptureFixture,
) -> None:
    leader = lead(1)
    await SignOutWriter(redis, KEYS).add(LIVE, "t1")
    await leader.take_all()
    assert await revoked(store, clock) == [(LIVE, "t1")]
    assert (leader.published, leader.taken) == (1, {"revoked": 1})
    (record,) = [one for one in audit.records if one.name == LOGGER]
    fields = {name: getattr(record, name) for name in ("event", "sid", "jti", "job", "reason")}
    assert fields == {
        "event": "revoked",
        "sid": LIVE,
        "jti": "t1",
        "job": "j1",
        "reason": "signed_out",
    }
    json.dumps(fields)


async def test_a_new_leader_continues_from_the_last_position(
    store: Store, redis: Redis, clock: Clock, lead: Callable[[int], Leader]
) -> None:
    writer, first = SignOutWriter(redis, KEYS), lead(1)
    await writer.add(LIVE, "t1")
    await first.take_all()
    await writer.add(LIVE, "t2")
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        await first.take_all()
    second = lead(2)
    await second.take_all()
    assert second.taken == {"revoked": 1}
    assert sorted(await revoked(store, clock)) == [(LIVE, "t1"), (LIVE, "t2")]
    async with store.read() as transaction:
        assert await read_sign_out_position(transaction) is not None


async def test_unknown_sessions_and_malformed_requests_are_counted_and_skipped(
    store: Store, redis: Redis, clock: Clock, lead: Callable[[int], Leader]
) -> None:
    leader, writer = lead(1), SignOutWriter(redis, KEYS)
    await redis.xadd(KEYS.asks, {"garbage": "x"})
    await redis.xadd(KEYS.asks, {"sid": LIVE, "sub": "everybody"})
    await writer.add(ENDED, "t1")
    await writer.add(make_sid(9), "t2")
    await writer.add(LIVE, "t3")
    await leader.take_all()
    assert leader.taken == {"malformed": 2, "unknown": 2, "revoked": 1}
    assert await revoked(store, clock) == [(LIVE, "t3")]


async def test_a_flood_for_one_session_is_bounded_and_delays_no_other(
    store: Store, redis: Redis, clock: Clock, lead: Callable[[int], Leader]
) -> None:
    leader, writer = lead(1), SignOutWriter(redis, KEYS)
    for number in range(MOST_OF_SESSION + 50):
        await writer.add(LIVE, f"f{number}")
    await writer.add(OTHER, "hers")
    await leader.take_all()
    assert leader.taken == {"revoked": MOST_OF_SESSION + 1, "too_many": 50}
    assert (OTHER, "hers") in await revoked(store, clock)
    clock.now += 60
    await writer.add(LIVE, "later")
    await leader.take_all()
    assert (LIVE, "later") in await revoked(store, clock)


async def test_a_lost_and_recreated_stream_is_followed(
    store: Store, redis: Redis, clock: Clock, lead: Callable[[int], Leader]
) -> None:
    leader = lead(1)
    await redis.xadd(KEYS.asks, {"sid": LIVE, "jti": "old"}, id="5000-0")
    await leader.take_all()
    await redis.delete(KEYS.asks)
    await leader.take_all()
    # The clock of Redis was set back, so its new entries precede those already handled.
    await redis.xadd(KEYS.asks, {"sid": LIVE, "jti": "new"}, id="4000-0")
    await leader.take_all()
    assert sorted(await revoked(store, clock)) == [(LIVE, "new"), (LIVE, "old")]


async def test_a_far_future_stream_id_does_not_block_later_requests(
    store: Store, redis: Redis, clock: Clock, lead: Callable[[int], Leader]
) -> None:
    leader = lead(1)
    last = f"{2**64 - 1}-{2**64 - 1}"
    await redis.xadd(KEYS.asks, {"sid": LIVE, "jti": "hostile"}, id=last)
    await leader.take_all()
    await redis.xadd(KEYS.asks, {"sid": LIVE, "jti": "hers"}, id="1750000000001-0")
    await leader.take_all()
    assert (LIVE, "hers") in await revoked(store, clock)
    assert await redis.xlen(KEYS.asks) == 1


def test_the_polling_rate_is_bounded() -> None:
    assert module.LOOK_SECONDS <= 0.25
