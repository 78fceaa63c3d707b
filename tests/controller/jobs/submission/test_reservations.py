"""Tests which jobs may name which others as peers, decided when jobs are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.spec.model import Job
from controller.jobs.submission.accept import Submissions
from controller.store.database import Store
from controller.store.jobs.job_rows import lock_job, update_job
from controller.store.jobs.relations import callers_of
from tests.controller.samples import make_job

WEB: dict[str, Any] = {"site": {"kind": "web", "port": 8000}}
NO_SUCH_JOB = "you have no such job, or it has ended"


def job(job_id: str, *peers: str, user: str = "ada", ports: Any = (), **fields: Any) -> Job:
    named = {
        f"p{index}": {"type": "peer", "job": peer, "hostname": f"h{index}", "ports": list(ports)}
        for index, peer in enumerate(peers)
    }
    return make_job(
        id=job_id, owner={"user": user}, parameters=named, **{"interactive": WEB, **fields}
    )


async def outcome(submissions: Submissions, *jobs: Job) -> dict[str | None, Any]:
    """Return each job's result, or the path and message of each problem."""
    return {
        one.id: {p.path: p.message for p in one.problems} or one.result
        for one in await submissions.submit(jobs, "best_effort")
    }


async def test_an_active_own_job_can_be_named(submissions: Submissions, store: Store) -> None:
    assert await outcome(submissions, job("a")) == {"a": "created"}
    assert await outcome(submissions, job("b", "a")) == {"b": "created"}
    async with store.read() as transaction:
        assert [one.job_id for one in await callers_of(transaction, "a")] == ["b"]


async def test_jobs_of_one_call_can_name_each_other_in_any_order(submissions: Submissions) -> None:
    found = await outcome(submissions, job("a", "b"), job("b", "c"), job("c", "a"))
    assert set(found.values()) == {"created"}


async def test_a_job_that_names_a_refused_job_is_refused(submissions: Submissions) -> None:
    found = await outcome(submissions, job("a", "b"), job("b", "c"), job("c", "absent"), job("d"))
    refused = {"parameters.p0.job": NO_SUCH_JOB}
    assert found == {"a": refused, "b": refused, "c": refused, "d": "created"}


async def test_another_owners_job_can_be_named_only_if_it_names_this_one(
    submissions: Submissions,
) -> None:
    await outcome(submissions, job("bobs", user="bob"))
    refused = {"parameters.p0.job": NO_SUCH_JOB}
    assert await outcome(submissions, job("a", "bobs")) == {"a": refused}
    both = job("b", "c", user="bob"), job("c", "b")
    assert set((await outcome(submissions, *both)).values()) == {"created"}


async def test_members_of_a_project_may_name_its_jobs(submissions: Submissions) -> None:
    ada = make_job(id="a", owner={"user": "ada", "project": "sun"}, interactive=WEB)
    named = {"lab": {"type": "peer", "job": "a", "hostname": "lab"}}
    bob = make_job(id="b", owner={"user": "bob", "project": "sun"}, parameters=named)
    alone = make_job(id="c", owner={"user": "ada"}, parameters=named)
    assert await outcome(submissions, ada) == {"a": "created"}
    assert await outcome(submissions, bob) == {"b": "created"}
    assert await outcome(submissions, alone) == {"c": {"parameters.lab.job": NO_SUCH_JOB}}


@pytest.mark.parametrize(
    "values",
    [{"outcome": "SUCCESS"}, {"state": "FAILURE"}, {"desired": "ended"}],
    ids=["concluded", "final", "asked"],
)
async def test_an_ended_or_ending_job_cannot_be_named(
    submissions: Submissions, store: Store, values: dict[str, Any]
) -> None:
    await outcome(submissions, job("a"))
    async with store.write() as transaction:
        record = await lock_job(transaction, "a")
        assert record is not None
        await update_job(transaction, record, now=9.0, **values)
    assert await outcome(submissions, job("b", "a")) == {"b": {"parameters.p0.job": NO_SUCH_JOB}}


async def test_a_peer_without_endpoints_needs_ports(submissions: Submissions) -> None:
    await outcome(submissions, job("a", interactive={}))
    (problem,) = (await outcome(submissions, job("b", "a")))["b"].items()
    assert problem[0] == "parameters.p0.ports"
    assert await outcome(submissions, job("b", "a", ports=[5432])) == {"b": "created"}


async def test_a_repeated_call_is_a_no_op_although_the_peer_ended(
    submissions: Submissions, store: Store
) -> None:
    jobs = job("a"), job("b", "a")
    await outcome(submissions, *jobs)
    async with store.write() as transaction:
        record = await lock_job(transaction, "a")
        assert record is not None
        await update_job(transaction, record, now=9.0, state="SUCCESS", outcome="SUCCESS")
    assert set((await outcome(submissions, *jobs)).values()) == {"unchanged"}
