"""Tests dry runs against a scripted API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.submission.dry_run import (
    AT_ONCE,
    MOST_SECONDS,
    NO_DRY_RUN_SECONDS,
    REST_SECONDS,
    DryRun,
    TimeBudget,
)
from controller.kube.client import Kube
from tests.clock import Clock
from tests.controller.kube.api_server import Answer, Script, says, serving
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_pipeline

DENIED = 'admission webhook "validatejob.volcano.sh" denied the request: '
OLD = 'admission webhook "old.example.com" does not support dry run'


@pytest.fixture
def script() -> Script:
    return Script(says({}, 201))


async def plans(count: int) -> list[Plan]:
    pipeline = make_pipeline()
    return [await pipeline.plan(make_job(id=f"j{number}")) for number in range(count)]


def hangs() -> Answer:
    """Never respond."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    return answer


async def test_a_dry_run_is_a_create_with_dry_run_all(
    kube: Kube, script: Script, clock: Clock
) -> None:
    assert await DryRun(kube, seconds=60.0, clock=clock).problems_of(await plans(1)) == [()]
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/jobs/jobs"
    assert script.requests == [("POST", path, {"dryRun": "All", "fieldValidation": "Strict"})]


async def test_each_job_gets_its_own_result_in_order(
    kube: Kube, script: Script, clock: Clock
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        name = (await request.json())["metadata"]["name"]
        if name == "j-j1":
            refusal = {"kind": "Status", "message": DENIED + "unable to find job plugin: x"}
            return web.json_response(refusal, status=400)
        return web.json_response({}, status=201)

    script.answer(answer)
    counted: list[str] = []
    asked = DryRun(kube, seconds=60.0, clock=clock, count=counted.append)
    found = await asked.problems_of(await plans(3))
    assert [[one.path for one in problems] for problems in found] == [[], ["framework"], []]
    assert counted == ["passed", "refused", "passed"]


async def test_concurrent_dry_runs_are_bounded(kube: Kube, script: Script, clock: Clock) -> None:
    together, most = 0, 0

    async def answer(_request: web.Request) -> web.StreamResponse:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1
        return web.json_response({}, status=201)

    script.answer(answer)
    asked = DryRun(kube, seconds=60.0, clock=clock)
    some, others = await plans(AT_ONCE + 4), await plans(AT_ONCE + 4)
    await asyncio.gather(asked.problems_of(some), asked.problems_of(others))
    assert len(script.requests) == len(some) + len(others)
    assert 1 < most <= AT_ONCE


@pytest.mark.parametrize(
    ("answer", "seconds", "is_silent"),
    [
        (says({"message": "no"}, 503), REST_SECONDS, False),
        (says({"message": "no"}, 429), REST_SECONDS, False),
        (says({"message": "no"}, 429, **{"Retry-After": "30"}), 30.0, False),
        (hangs(), REST_SECONDS, True),
        (says({"message": OLD}, 400), NO_DRY_RUN_SECONDS, False),
    ],
    ids=["503", "429", "429-later", "silence", "no-dry-run"],
)
async def test_an_unresponsive_server_pauses_dry_runs(
    kube: Kube,
    script: Script,
    clock: Clock,
    answer: Answer,
    seconds: float,
    is_silent: bool,
) -> None:
    script.answer(answer)
    # Only a silent server gets a short deadline: a busy machine must not look silent.
    counted: list[str] = []
    asked = DryRun(kube, seconds=0.3 if is_silent else 60.0, clock=clock, count=counted.append)
    many = await plans(AT_ONCE * 3)
    assert await asked.problems_of(many) == [()] * len(many)
    assert set(counted) == {"unsure", "untried"}
    assert len(script.requests) <= AT_ONCE
    script.answer(says({"message": DENIED + "no"}, 400))
    clock.now += seconds - 0.1
    assert await asked.problems_of(many[:1]) == [()]
    assert len(script.requests) <= AT_ONCE

    async def told() -> str | None:
        clock.now += seconds + 0.1
        (problems,) = await asked.problems_of(many[:1])
        return problems[0].message if problems else None

    assert await eventually(told) == "no"


async def test_an_unreachable_server_refuses_no_job(tmp_path: Path, clock: Clock) -> None:
    script = Script(says({}))
    async with serving(script, tmp_path) as kube:
        asked = DryRun(kube, seconds=60.0, clock=clock)
        wanted = await plans(1)
        script.answer(_cuts)
        assert await asked.problems_of(wanted) == [()]


async def _cuts(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_dry_run_call_ends_at_its_deadline(
    kube: Kube, script: Script, clock: Clock
) -> None:
    script.answer(says({"message": DENIED + "no"}, 400), hangs())
    many = await plans(AT_ONCE * 2)
    async with asyncio.timeout(30):
        asked = DryRun(kube, seconds=60.0, clock=clock)
        found = await asked.problems_of(many, TimeBudget(0.2))
    # Problems found before the deadline are reported, if there are any.
    assert sum(map(len, found)) <= 1
    assert len(found) == len(many)


async def test_plans_of_one_call_share_its_deadline(
    kube: Kube, script: Script, clock: Clock
) -> None:
    asked, allowance = DryRun(kube, seconds=60.0, clock=clock), TimeBudget()
    some = await plans(2)
    script.answer(says({}))
    assert await asked.problems_of(some, allowance) == [(), ()]
    assert allowance.seconds == MOST_SECONDS  # this clock stands still
    script.answer(hangs())
    allowance.seconds = 0.2
    assert await asked.problems_of(some, allowance) == [(), ()]
    assert allowance.seconds == 0.0
    # No time is left, so the others get no dry run.
    script.answer(says({"message": DENIED + "no"}, 400))
    assert await asked.problems_of(some, allowance) == [(), ()]
    assert all(await asked.problems_of(some))


GONE = {"reason": "NotFound", "message": 'queues.scheduling.volcano.sh "q" not found'}


@pytest.mark.parametrize(
    ("first", "queue", "answer", "paths"),
    [
        # An owner's first job: without the namespace, the API server does not call Volcano's
        # webhook.
        (404, "q", says(GONE | {"details": {"name": "q", "kind": "queues"}}, 404), ["queue"]),
        (403, "q", says(GONE | {"details": {"name": "q", "kind": "queues"}}, 404), ["queue"]),
        (404, "q", says({"metadata": {"name": "q"}}), []),
        (404, "q", says({"message": "404 page not found"}, 404), []),
        (404, "q", says({}, 403), []),
        (404, "q", says({}, 500), []),
        (404, None, says(GONE | {"details": {"name": "q"}}, 404), []),
        (409, "q", says(GONE | {"details": {"name": "q"}}, 404), []),
    ],
)
async def test_a_missing_queue_is_reported_although_the_namespace_is_missing_too(
    kube: Kube,
    script: Script,
    clock: Clock,
    first: int,
    queue: str | None,
    answer: Answer,
    paths: list[str],
) -> None:
    script.answer(says({"message": 'namespaces "x" not found'}, first), answer)
    plan = await make_pipeline().plan(make_job(queue=queue))
    (found,) = await DryRun(kube, seconds=60.0, clock=clock).problems_of([plan])
    assert [one.path for one in found] == paths
