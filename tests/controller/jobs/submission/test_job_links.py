"""Tests a job's public links in the store, from its acceptance to its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import Problem
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.checking import SubmissionResult
from controller.jobs.submission.reservations import PublicLinks
from controller.sessions.routes import route_of
from controller.store.database import Store
from controller.store.jobs.job_rows import find_job
from controller.store.jobs.public_links import PASSES_ON_SECONDS
from controller.store.sessions.session_rows import Session, end_sessions_of, live_sessions_of
from tests.clock import Clock
from tests.controller.samples import make_job, make_pod

LAB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888, "base_path": "/lab"}}


def linked(job_id: str = "j1", *, user: str = "ada", links: Sequence[str] = ("my-demo",)) -> Job:
    return make_job(id=job_id, owner={"user": user}, interactive=LAB, links=list(links))


@pytest.fixture
def links(store: Store, clock: Clock) -> PublicLinks:
    return PublicLinks(store, clock=clock, random=os.urandom, enqueue=lambda _job: None)


async def sessions_of(store: Store, job_id: str) -> list[Session]:
    async with store.read() as transaction:
        return await live_sessions_of(transaction, [job_id])


async def submit(submissions: Submissions, *jobs: Job) -> list[SubmissionResult]:
    return await submissions.submit(jobs, "best_effort")


def conflict(job_id: str, why: str) -> SubmissionResult:
    return SubmissionResult(job_id, "conflict", (Problem("links[0]", why),))


async def test_an_accepted_job_has_its_links_and_a_public_route_at_once(
    submissions: Submissions, store: Store
) -> None:
    await submit(submissions, linked(links=["my-demo", "other"]))
    (session,) = await sessions_of(store, "j1")
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    assert record is not None
    route = route_of(session, record=record, pod=None, hub=None, base_domain="apps.example.com")
    assert route is not None
    assert (route.public, route.kind, route.state) == (True, "web", "starting")
    assert route.hosts == (
        f"{session.sid}.apps.example.com", "my-demo.apps.example.com", "other.apps.example.com",
    )  # fmt: skip
    running = route_of(
        session, record=replace(record, uid="vcjob-1"), pod=make_pod(), hub=None,
        base_domain="apps.example.com",
    )  # fmt: skip
    assert running is not None
    assert running.target is not None
    assert (running.target.port, running.target.base_path) == (8888, "/lab")


async def test_another_users_session_is_not_public(store: Store) -> None:
    session = Session(
        sid="a" * 26, job_id="j1", rank=0, kind="web", endpoint="lab", port=8888, base_path="/",
        created_at=1.0,
    )  # fmt: skip
    from tests.controller.samples import make_record

    route = route_of(session, record=make_record(), pod=None, hub=None, base_domain="a.example")
    assert route is not None
    assert (route.public, route.hosts) == (False, (f"{'a' * 26}.a.example",))


async def test_a_link_of_another_job_is_a_conflict_also_within_one_call(
    submissions: Submissions, store: Store
) -> None:
    first, second = await submit(submissions, linked("j1"), linked("j2"))
    assert (first.result, second) == ("created", conflict("j2", "is in use by another job"))
    assert await submit(submissions, linked("j3")) == [conflict("j3", "is in use by another job")]
    assert await sessions_of(store, "j3") == []
    assert [one.result for one in await submit(submissions, linked("j1"))] == ["unchanged"]


async def test_a_refused_atomic_call_reserves_no_link(
    submissions: Submissions, store: Store
) -> None:
    await submit(submissions, linked("j1"))
    jobs = [linked("j2", links=["other"]), linked("j3")]
    results = await submissions.submit(jobs, "atomic")
    assert [one.result for one in results] == ["created", "conflict"]
    assert await sessions_of(store, "j2") == []
    assert [one.result for one in await submit(submissions, linked("j4", links=["other"]))] == [
        "created"
    ]


async def test_a_released_link_passes_to_another_owner_after_thirty_days(
    submissions: Submissions, links: PublicLinks, store: Store, clock: Clock
) -> None:
    await submit(submissions, linked("j1"))
    async with store.write() as transaction:
        await end_sessions_of(transaction, "j1", reason="job ended", now=clock())
    await links.release("j1")
    clock.now += PASSES_ON_SECONDS - 1
    bobs = linked("j2", user="bob")
    assert await submit(submissions, bobs) == [conflict("j2", "is reserved for another owner")]
    clock.now += 1
    assert [one.result for one in await submit(submissions, bobs)] == ["created"]


async def test_members_of_a_project_may_reuse_its_links(
    submissions: Submissions, links: PublicLinks
) -> None:
    fields: dict[str, Any] = {"interactive": LAB, "links": ["my-demo"]}
    ada = make_job(id="j1", owner={"user": "ada", "project": "sun"}, **fields)
    bob = make_job(id="j2", owner={"user": "bob", "project": "sun"}, **fields)
    await submit(submissions, ada)
    await links.release("j1")
    assert [one.result for one in await submit(submissions, bob)] == ["created"]


async def test_a_job_that_is_started_again_has_its_links_again(
    submissions: Submissions, links: PublicLinks, store: Store, clock: Clock
) -> None:
    job = linked("j1")
    await submit(submissions, job)
    (first,) = await sessions_of(store, "j1")
    await links.expose(job)
    assert await sessions_of(store, "j1") == [first]
    async with store.write() as transaction:
        await end_sessions_of(transaction, "j1", reason="restarting", now=clock())
    await links.expose(job)
    (second,) = await sessions_of(store, "j1")
    assert second.sid != first.sid
    assert second.links == ("my-demo",)


async def test_a_job_whose_link_was_taken_runs_without_it(
    submissions: Submissions, links: PublicLinks, store: Store
) -> None:
    await submit(submissions, linked("j1"))
    await links.expose(linked("j9"))
    assert await sessions_of(store, "j9") == []
    assert len(await sessions_of(store, "j1")) == 1
