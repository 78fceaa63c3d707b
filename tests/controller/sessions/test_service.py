from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from typing import Any, Literal

import pytest

from controller.jobs.spec.accepted import public_spec
from controller.sessions.service import SessionService
from controller.sessions.session_requests import SessionItem, SessionsRefused
from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.jobs.job_rows import insert_job, lock_job, update_job
from controller.store.sessions.session_rows import SessionFilter, end_sessions_of
from shared.events import GrantRevoked
from tests.controller.postgres import Postgres
from tests.controller.samples import make_job, make_record

JOB = make_job(
    tasks=[{"name": "master"}, {"name": "worker"}],
    interactive={"lab": {"kind": "web", "port": 8888, "task": "worker"}},
)


@pytest.fixture
async def service(store: Store) -> SessionService:
    return await make_service(store)


async def make_service(store: Store) -> SessionService:
    """Return a session service over a store that knows the job."""
    async with store.write() as transaction:
        await insert_job(transaction, make_record(spec=public_spec(JOB)), labels={})
    return SessionService(
        store=store,
        base_domain="apps.example.com",
        clock=lambda: 1.0,
        random=os.urandom,
        states_of=_starting,
        until_published=_at_once,
        enqueue=lambda _job: None,
        tell=_tell,
        rank_services=True,
    )


async def _starting(sids: Collection[str]) -> dict[str, Literal["starting", "ready"]]:
    return dict.fromkeys(sids, "starting")


async def _at_once(_sids: object) -> None:
    return


async def _tell(event: GrantRevoked, *, term: int) -> None:
    raise AssertionError(event, term)


async def test_endpoints_with_services_can_be_opened(service: SessionService) -> None:
    declared = SessionItem(job="j1", rank=1, endpoint="lab")
    same = SessionItem(job="j1", rank=1, kind="web", port=8888)
    shell = SessionItem(job="j1", rank=0, kind="terminal")
    assert len((await service.open([declared, same, shell])).views) == 3


@pytest.mark.parametrize(("rank", "port"), [(1, 8889), (0, 8888)])
async def test_a_port_without_service_is_refused(
    service: SessionService, rank: int, port: int
) -> None:
    with pytest.raises(SessionsRefused) as refused:
        await service.open([SessionItem(job="j1", rank=rank, kind="web", port=port)])
    (problem,) = refused.value.problems
    assert problem.path == "items[0].port"


async def test_a_job_with_decided_end_keeps_no_session(
    service: SessionService, store: Store
) -> None:
    async with store.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=2.0, state="RUNNING", outcome="SUCCESS")
        await end_sessions_of(transaction, "j1", reason="job ended", now=2.0)
    with pytest.raises(SessionsRefused, match="the job is over"):
        await service.open([SessionItem(job="j1", rank=1, endpoint="lab")])


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"state": "RUNNING"}, "starting"),
        ({"state": "CANCELING", "desired": "ended"}, "ended"),
        ({"state": "SUCCESS"}, "ended"),
    ],
)
async def test_a_session_ends_with_the_request_that_ends_its_job(
    service: SessionService, store: Store, values: dict[str, Any], state: str
) -> None:
    (opened,) = (await service.open([SessionItem(job="j1", rank=1, endpoint="lab")])).views
    async with store.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=2.0, **values)
    found = await service.get(opened.sid)
    assert found is not None
    assert (found.state, found.ended_at) == (state, None)
    listed, _ = await service.find(SessionFilter(), states=["starting"], after=None, limit=9)
    assert [one.sid for one in listed] == ([opened.sid] if state == "starting" else [])


@pytest.mark.needs("postgres")
async def test_a_job_that_ends_meanwhile_keeps_no_session(postgres: Postgres) -> None:
    url = postgres.new_database()
    store, leader = Store(url), Store(url)
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    service = await make_service(store)
    async with leader.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        opening = asyncio.create_task(service.open([SessionItem(job="j1", rank=1, endpoint="lab")]))
        await asyncio.sleep(0.3)
        assert not opening.done()
        await update_job(transaction, record, now=2.0, state="SUCCESS")
        await end_sessions_of(transaction, "j1", reason="job ended", now=2.0)
    with pytest.raises(SessionsRefused, match="the job is over"):
        await opening
    await store.close()
    await leader.close()
