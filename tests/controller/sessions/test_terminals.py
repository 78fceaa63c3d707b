from __future__ import annotations

import pytest
import sqlalchemy as sa

from controller.sessions.terminals import TerminalSessions, target_id, target_path
from controller.store import tables
from controller.store.database import Store
from controller.store.instance import Heartbeat, Hub, read_heartbeats
from controller.store.sessions.session_rows import (
    Session,
    assign_shell,
    end_session,
    insert_session,
)
from tests.clock import Clock

SID = "a" * 26
HUB = Hub(id="boot-1", host="10.0.0.1", port=8082)


@pytest.fixture
async def session(store: Store, clock: Clock) -> Session:
    async with store.write() as transaction:
        await transaction.execute(
            sa.insert(tables.jobs).values(
                id="j1", owner_user="ada", namespace="jobs", spec={}, desired="run",
                state="RUNNING", attempt=1, created_at=clock(), revision=1,
            )
        )  # fmt: skip
        made = Session(
            sid=SID, job_id="j1", rank=0, kind="terminal", endpoint=None, port=None,
            base_path="/", created_at=clock(),
        )  # fmt: skip
        await insert_session(transaction, made)
    return made


async def assign(store: Store, *, hub: str = "boot-1", pod_uid: str = "u1") -> None:
    async with store.write() as transaction:
        await assign_shell(transaction, SID, hub_id=hub, pod="j-j1-job-0", pod_uid=pod_uid)


async def test_a_heartbeat_replaces_the_last_one(store: Store, clock: Clock) -> None:
    hub = TerminalSessions(store, HUB, clock=clock)
    await hub.refresh()
    clock.now += 2.0
    await hub.refresh()
    async with store.read() as transaction:
        assert await read_heartbeats(transaction) == [Heartbeat(hub=HUB, seen_at=clock())]


async def test_a_hub_that_deregisters_is_gone_at_once(store: Store, clock: Clock) -> None:
    hub = TerminalSessions(store, HUB, clock=clock)
    await hub.refresh()
    await hub.leave()
    async with store.read() as transaction:
        assert await read_heartbeats(transaction) == []


async def test_a_hub_sees_the_terminals_that_are_assigned_to_it(
    store: Store, clock: Clock, session: Session
) -> None:
    hub = TerminalSessions(store, HUB, clock=clock)
    assert await hub.find(SID) is None
    await assign(store)
    found = await hub.find(SID)
    assert found is not None
    assert (found.namespace, found.pod, found.pod_uid) == ("jobs", "j-j1-job-0", "u1")
    assert await hub.held() == {SID: found}


async def test_a_terminal_of_another_hub_is_not_found(
    store: Store, clock: Clock, session: Session
) -> None:
    await assign(store, hub="boot-2")
    assert await TerminalSessions(store, HUB, clock=clock).find(SID) is None


async def test_a_moved_terminal_is_distinguished_from_an_ended_one(
    store: Store, clock: Clock, session: Session
) -> None:
    hub = TerminalSessions(store, HUB, clock=clock)
    await assign(store, hub="boot-2")
    assert await hub.moved({SID, "other"}) == {SID}
    async with store.write() as transaction:
        await end_session(transaction, SID, reason="deleted", now=clock())
    assert await hub.moved({SID}) == set()


async def test_a_terminal_that_has_ended_is_not_found(
    store: Store, clock: Clock, session: Session
) -> None:
    await assign(store)
    async with store.write() as transaction:
        assert await end_session(transaction, SID, reason="deleted", now=clock())
    hub = TerminalSessions(store, HUB, clock=clock)
    assert await hub.find(SID) is None
    assert await hub.held() == {}
    async with store.write() as transaction:
        assert not await assign_shell(
            transaction, SID, hub_id=HUB.id, pod="j-j1-job-0", pod_uid="u1"
        )


async def test_another_pod_gets_another_shell(store: Store, clock: Clock, session: Session) -> None:
    hub = TerminalSessions(store, HUB, clock=clock)
    await assign(store, pod_uid="u1")
    before = await hub.find(SID)
    await assign(store, pod_uid="u2")
    after = await hub.find(SID)
    assert before is not None
    assert after is not None
    assert before.shell != after.shell


def test_terminal_targets_name_hub_and_pod() -> None:
    assert target_id("boot-1", "u1") == "boot-1/u1"
    assert target_path(SID) == f"/terminals/{SID}"
