"""Tests dry runs: the API server's refusals reach the caller that submits the jobs."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.controller.api.conftest import Api
from tests.controller.api.jobs import make_job, submit
from tests.controller.kube.api_server import Answer, Script, says

DENIED = 'admission webhook "validatejob.volcano.sh" denied the request: '


def refuses(*names: str) -> Answer:
    """Refuse the VolcanoJobs of these jobs, each for two reasons."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["metadata"]["name"].removeprefix("j-") not in names:
            return web.json_response(body, status=201)
        said = f'{DENIED}unable to find job plugin: x; unable to find job queue: "q" not found;'
        refusal = {"kind": "Status", "message": said, "reason": "BadRequest"}
        return web.json_response(refusal, status=400)

    return answer


async def test_a_refused_dry_run_is_422_with_paths_of_the_job(api: Api, script: Script) -> None:
    script.answer(refuses("b"))
    wrong = make_job("c", tasks=[{"name": "x", "depends_on": ["y"]}])
    status, said = await submit(api, make_job("a"), make_job("b", queue="q"), wrong)
    assert status == 422
    # One response lists all problems, from every source.
    paths = [one["path"] for one in said["details"]["problems"]]
    assert paths == ["items[1].framework", "items[1].queue", "items[2].tasks[0].depends_on[0]"]
    assert (await (await api.client.get("/v1/jobs")).json())["items"] == []
    assert api.enqueued == []


async def test_in_best_effort_only_jobs_refused_by_the_dry_run_are_left_out(
    api: Api, script: Script
) -> None:
    script.answer(refuses("b"))
    status, said = await submit(
        api, make_job("a"), make_job("b"), make_job("c"), mode="best_effort"
    )
    assert status == 200
    assert [one["result"] for one in said["items"]] == ["created", "rejected", "created"]
    # The controller creates a queue that the job does not name, if it is missing.
    assert [one["path"] for one in said["items"][1]["problems"]] == ["framework"]


async def test_a_repeated_job_is_not_dry_run_again(api: Api, script: Script) -> None:
    script.answer(refuses())
    assert (await submit(api, make_job("a")))[1]["items"][0]["result"] == "created"
    asked = len(script.requests)
    script.answer(refuses("a"))
    assert (await submit(api, make_job("a")))[1]["items"][0]["result"] == "unchanged"
    assert (await submit(api, make_job("a", replicas=2)))[0] == 409
    assert len(script.requests) == asked == 1


async def test_an_invalid_job_is_not_dry_run(api: Api, script: Script) -> None:
    assert (await submit(api, make_job("a", tools=["tensorboard"])))[0] == 422
    assert (await submit(api, make_job("a"), make_job("a")))[0] == 422
    assert [path for _, path, _ in script.requests].count("POST") == 0
    assert len(script.requests) <= 1, "only the first of the twins"


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_an_unavailable_dry_run_refuses_no_job(api: Api, script: Script, status: int) -> None:
    script.answer(says({"message": "no"}, status))
    assert (await submit(api, make_job("a")))[1]["items"][0]["result"] == "created"
    assert api.enqueued == ["a"]
