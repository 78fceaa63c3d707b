from __future__ import annotations

import time

from controller.store.database import Store
from controller.store.instance import read_store_metadata
from controller.store.sessions.revocations import (
    StoredRevocation,
    active_revocations,
    add_revocation,
    forget_revocations,
    revocation_time,
)
from shared.events import REVOCATION_KEPT_SECONDS


def make(member: str = "jti:t1", at: float = 1000.0) -> StoredRevocation:
    return StoredRevocation(member=member, at=at, sid="a" * 26, jti="t1")


async def test_of_two_revocation_times_the_later_is_kept(store: Store) -> None:
    async with store.write() as transaction:
        for at in (1000.0, 2000.0, 1500.0):
            await add_revocation(transaction, make(at=at))
        found = await active_revocations(transaction, now=2000.0)
    assert found == [make(at=2000.0)]


async def test_a_revocation_is_kept_for_the_longest_grant(store: Store) -> None:
    async with store.write() as transaction:
        await add_revocation(transaction, make())
        end = 1000.0 + REVOCATION_KEPT_SECONDS
        assert await active_revocations(transaction, now=end - 1)
        assert not await active_revocations(transaction, now=end)
        await forget_revocations(transaction, now=end - 1)
        assert await active_revocations(transaction, now=end - 1)
        await forget_revocations(transaction, now=end + 1)
        assert not await active_revocations(transaction, now=end - 1)


async def test_revocations_extended_since_a_position_are_found(store: Store) -> None:
    async with store.write() as transaction:
        await add_revocation(transaction, make())
        seen = (await read_store_metadata(transaction)).revision
        assert not await active_revocations(transaction, now=1000.0, after=seen)
        await add_revocation(transaction, make(at=1001.0))
        await add_revocation(transaction, make("jti:t2", at=999.0))
        found = await active_revocations(transaction, now=1001.0, after=seen)
    assert [one.member for one in found] == ["jti:t1", "jti:t2"]


async def test_a_revocation_by_a_fast_clock_keeps_its_time(
    store: Store,
) -> None:
    ahead = time.time() + 600
    async with store.write() as transaction:
        assert await revocation_time(transaction, now=ahead) == ahead
