from __future__ import annotations

import pytest

from controller.sessions import snapshot
from controller.sessions.snapshot import SnapshotReader
from controller.store.database import Store, Transaction
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import (
    Heartbeat,
    Hub,
    raise_term,
    read_heartbeats,
    record_published,
    refresh_hub,
)
from controller.store.jobs.job_rows import insert_job
from controller.store.sessions.session_rows import Session, end_session, insert_session
from shared.events import Head
from tests.controller.samples import make_record


def session(sid: str, job: str, kind: str = "web") -> Session:
    return Session(
        sid=sid, job_id=job, rank=0, kind="terminal" if kind == "terminal" else "web",
        endpoint=None, port=None, base_path="/", created_at=1.0,
    )  # fmt: skip


@pytest.fixture
async def reader(store: Store) -> SnapshotReader:
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for number in range(3):
            await insert_job(transaction, make_record(id=f"j{number}"), labels={})
            await insert_session(transaction, session(f"s{number}", f"j{number}"))
    return SnapshotReader(store.fenced(term))


async def test_a_new_session_is_pending_until_processed(
    store: Store, reader: SnapshotReader
) -> None:
    first = await reader.next(now=2.0)
    assert first.jobs == {"j0", "j1", "j2"}
    assert (await reader.next(now=2.0)).jobs == first.jobs
    reader.mark_done(first)
    assert (await reader.next(now=2.0)).jobs == frozenset()
    async with store.write() as transaction:
        await end_session(transaction, "s1", reason="ended", now=2.0)
    after = await reader.next(now=2.0)
    assert after.jobs == {"j1"}
    assert not after.sessions


async def test_job_changes_matter_while_it_has_sessions(
    store: Store, reader: SnapshotReader
) -> None:
    reader.mark_done(await reader.next(now=2.0))
    assert reader.concerns("j1")
    assert not reader.concerns("j9")
    async with store.write() as transaction:
        await end_session(transaction, "s1", reason="ended", now=2.0)
        await insert_job(transaction, make_record(id="j9"), labels={})
        await insert_session(transaction, session("s9", "j9"))
    reader.mark_done(await reader.next(now=2.0))
    assert not reader.concerns("j1")
    assert reader.concerns("j9")
    await reader.everything(None, data_lost=False, now=2.0)
    assert [reader.concerns(f"j{number}") for number in (0, 1, 2, 9)] == [True, False, True, True]


@pytest.mark.parametrize("everything", [True, False])
async def test_during_a_store_read_a_change_of_any_job_matters(
    reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    """The read may include the job's session but not the change; no later event would repair it."""
    reported = []

    async def changes_meanwhile(transaction: Transaction) -> list[Heartbeat]:
        reported.append(reader.concerns("j1"))
        return await read_heartbeats(transaction)

    monkeypatch.setattr(snapshot, "read_heartbeats", changes_meanwhile)
    assert not reader.concerns("j1")
    if everything:
        await reader.everything(None, data_lost=False, now=2.0)
    else:
        await reader.next(now=2.0)
    assert reported == [True]
    assert reader.concerns("j1")
    assert not reader.concerns("j9")


async def test_many_jobs_are_read_in_batches(
    reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "AT_ONCE", 2)
    first = await reader.next(now=2.0)
    reader.mark_done(first)
    second = await reader.next(now=2.0)
    assert (len(first.jobs), len(second.jobs)) == (2, 1)
    assert first.jobs | second.jobs == {"j0", "j1", "j2"}


async def test_an_unreadable_job_stays_pending(
    reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_args: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(snapshot, "live_sessions_of", fail)
    with pytest.raises(StoreUnavailable):
        await reader.next(now=2.0)
    assert len(reader.dirty_set) == 3


async def test_a_new_hub_triggers_a_review_of_terminals(
    store: Store, reader: SnapshotReader
) -> None:
    reader.mark_done(await reader.next(now=2.0))
    async with store.write() as transaction:
        await insert_session(transaction, session("shell", "j1", "terminal"))
    reader.mark_done(await reader.next(now=2.0))
    async with store.write() as transaction:
        await refresh_hub(transaction, Hub(id="h", host="10.9.0.1", port=1), now=2.0)
    assert (await reader.next(now=2.0)).jobs == {"j1"}


async def test_a_lost_leader_reads_nothing(store: Store, reader: SnapshotReader) -> None:
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        await reader.next(now=2.0)
    with pytest.raises(LeadershipLost):
        await reader.resync([], now=2.0)


@pytest.mark.parametrize(
    ("head", "since"),
    [
        (None, 9.0),
        (("e", 7), 3.0),
        (("e", 8), 3.0),
        # Redis has lost the last head that was published.
        (("e", 6), 9.0),
        (("other", 7), 9.0),
    ],
)
async def test_used_token_marks_are_valid_since_the_last_data_loss(
    store: Store, reader: SnapshotReader, head: tuple[str, int] | None, since: float
) -> None:
    reported = None
    if head is not None:
        reported = Head(term=1, epoch=head[0], seq=head[1], since=3.0, routes=0, revoked=0)
    # Nothing was ever published, so nothing could be lost.
    assert (await reader.everything(None, data_lost=False, now=9.0))[1] is None
    async with store.write() as transaction:
        await record_published(transaction, epoch="e", seq=7)
    assert (await reader.everything(reported, data_lost=False, now=9.0))[1] == since
    assert (await reader.everything(reported, data_lost=True, now=9.0))[1] == 9.0
