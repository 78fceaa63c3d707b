"""Tests what the API server's responses about a job's objects prove."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.jobs.cluster.job_objects import JobObjects
from controller.kube.errors import Conflict, Forbidden, NotServed
from controller.store.jobs.progress import CompanionRecord
from tests.controller.kube.api_server import Answer, Script, says, serving, thing
from tests.controller.samples import make_observed, make_pod

# The response of kube-apiserver 1.3x for an unknown kind, and for an unknown group.
NO_KIND = says({"kind": "Status", "reason": "NotFound", "details": {}, "code": 404,
                "message": "the server could not find the requested resource"}, 404)  # fmt: skip
GONE = says({"kind": "Status", "reason": "NotFound", "code": 404, "details": {"name": "j-a"},
             "message": 'jobs.batch.volcano.sh "j-a" not found'}, 404)  # fmt: skip


async def no_group(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="404 page not found\n")


@pytest.mark.parametrize("answer", [NO_KIND, no_group])
async def test_an_unserved_kind_proves_no_absence(answer: Answer, tmp_path: Path) -> None:
    async with serving(Script(answer), tmp_path) as kube:
        objects = JobObjects(kube, instance="test")
        calls: list[Any] = [
            objects.find_volcano_job("jobs", "j-a", "a"),
            objects.remove_volcano_job("jobs", "j-a", "uid"),
            objects.remove_volcano_job("jobs", "j-a", "uid", shown=False),
            objects.withdraw_command("a", "jobs"),
        ]
        for call in calls:
            with pytest.raises(NotServed):
                await call


async def test_a_404_proves_absence(tmp_path: Path) -> None:
    async with serving(Script(GONE), tmp_path) as kube:
        objects = JobObjects(kube, instance="test")
        assert await objects.find_volcano_job("jobs", "j-a", "a") is None
        await objects.remove_volcano_job("jobs", "j-a", "uid")


REFUSED = says({"kind": "Status", "reason": "Conflict", "code": 409,
                "message": "the object has been modified; please apply your changes to the latest "
                           "version and try again"}, 409)  # fmt: skip


def there(uid: str) -> Answer:
    found = thing("j-a", "7")
    found["metadata"]["uid"] = uid
    return says(found)


async def test_a_refused_deletion_does_not_prove_absence(
    tmp_path: Path,
) -> None:
    # Otherwise the job would run on: the controller does not repeat a successful removal.
    async with serving(Script(REFUSED, there("uid")), tmp_path) as kube:
        with pytest.raises(Conflict):
            await JobObjects(kube, instance="test").remove_volcano_job("jobs", "j-a", "uid")


@pytest.mark.parametrize("answer", [there("another"), GONE])
async def test_a_read_of_another_uid_or_404_proves_absence_after_a_refused_delete(
    answer: Answer, tmp_path: Path
) -> None:
    script = Script(REFUSED, answer)
    async with serving(script, tmp_path) as kube:
        await JobObjects(kube, instance="test").remove_volcano_job("jobs", "j-a", "uid")
    assert [method for method, *_ in script.requests] == ["DELETE", "GET"]


async def test_a_kind_no_longer_served_proves_no_deletion(
    tmp_path: Path,
) -> None:
    async with serving(Script(REFUSED, NO_KIND), tmp_path) as kube:
        with pytest.raises(NotServed):
            await JobObjects(kube, instance="test").remove_volcano_job("jobs", "j-a", "uid")


async def test_objects_created_by_volcano_are_deleted_by_owner_uid(tmp_path: Path) -> None:
    no_right = says({"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no"}, 403)
    text = "the server rejected our request due to an error in our request"
    not_its = says({"kind": "Status", "reason": "Invalid", "code": 422, "message": text}, 422)
    answers = {"j-a": there("service"), "j-a-svc": not_its, "j-a-ssh": no_right}
    deleted: list[tuple[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        sent = await request.json()
        if request.method == "DELETE":
            deleted.append((request.path, sent["preconditions"]))
            return web.json_response({"kind": "Status", "status": "Success"})
        assert [(one["op"], one["value"]) for one in sent] == [("test", "owner")]
        return await answers.get(name, GONE)(request)

    async with serving(Script(answer), tmp_path) as kube:
        await JobObjects(kube, instance="test").remove_volcanos("jobs", "j-a", "owner")
    assert deleted == [("/api/v1/namespaces/jobs/services/j-a", {"uid": "service"})]


async def test_a_command_that_volcano_takes_meanwhile_is_issued(tmp_path: Path) -> None:
    text = 'commands.bus.volcano.sh "j-a.command" already exists'
    exists = says({"kind": "Status", "reason": "AlreadyExists", "code": 409, "message": text}, 409)
    script = Script(exists, GONE)
    async with serving(script, tmp_path) as kube:
        job = make_observed()
        assert await JobObjects(kube, instance="test").command("a", job, "AbortJob")
    assert [method for method, *_ in script.requests] == ["POST", "GET"]
    ours = thing("j-a.command", "7")
    ours["metadata"] |= {"uid": "uid", "labels": OURS}
    async with serving(Script(exists, says(ours)), tmp_path) as kube:
        assert not await JobObjects(kube, instance="test").command("a", job, "AbortJob")
    async with serving(Script(exists, NO_KIND), tmp_path) as kube:
        with pytest.raises(NotServed):
            await JobObjects(kube, instance="test").command("a", job, "AbortJob")


NO_RIGHT = says({"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no"}, 403)
OURS = {"fumarole.dev/instance": "test", "fumarole.dev/job": "a"}


class Ending:
    """A server that lost the rights in a namespace; lists are allowed in the whole cluster."""

    def __init__(self, *jobs: dict[str, Any], **metadata: Any) -> None:
        self._jobs = list(jobs)
        self._namespace = {"metadata": {"name": "jobs", **metadata}, "status": {}}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/namespaces/jobs":
            return web.json_response(self._namespace)
        if request.method == "GET" and request.path.endswith("/jobs"):
            assert request.query["labelSelector"] == "fumarole.dev/instance=test,fumarole.dev/job=a"
            return web.json_response({"items": self._jobs, "metadata": {"resourceVersion": "1"}})
        return await NO_RIGHT(request)


async def test_lists_prove_absence_where_objects_may_not_be_read(tmp_path: Path) -> None:
    still = thing("j-a", "7")
    still["metadata"] |= {"uid": "uid", "labels": OURS}
    for server, uid in ((Ending(), None), (Ending(still), "uid")):
        async with serving(Script(server), tmp_path) as kube:
            found = await JobObjects(kube, instance="test").find_volcano_job("jobs", "j-a", "a")
        assert (found.uid if found is not None else None) == uid


async def test_what_a_terminating_namespace_takes_along_needs_no_deletion(tmp_path: Path) -> None:
    secret = CompanionRecord(
        kind="Secret", namespace="jobs", name="j-a.parameters", uid="", owner_uid=None
    )
    server = Ending(deletionTimestamp="2026-01-01T00:00:00Z")
    async with serving(Script(server), tmp_path) as kube:
        objects = JobObjects(kube, instance="test")
        assert await objects.remove_volcano_job("jobs", "j-a", "uid")
        await objects.companions.remove("a", secret)
        await objects.companions.remove("a", replace(secret, uid="known"))
        await objects.remove_pods("jobs", [make_pod()])
        await objects.withdraw_command("a", "jobs")


async def test_without_rights_in_a_living_namespace_nothing_counts_as_deleted(
    tmp_path: Path,
) -> None:
    async with serving(Script(Ending()), tmp_path) as kube:
        objects = JobObjects(kube, instance="test")
        for call in (
            objects.remove_volcano_job("jobs", "j-a", "uid"),
            objects.remove_pods("jobs", [make_pod()]),
            objects.withdraw_command("a", "jobs"),
        ):
            with pytest.raises(Forbidden):
                await call


async def test_a_plugins_object_that_was_perhaps_never_made_needs_no_right(tmp_path: Path) -> None:
    """Without the right to make it, its job has run, and must end."""
    booking = CompanionRecord(
        kind="example.com/v1/bookings", namespace="jobs", name="j-a.b", uid="", owner_uid=None
    )
    async with serving(Script(Ending()), tmp_path) as kube:
        companions = JobObjects(kube, instance="test").companions
        await companions.remove("a", booking)
        for one in (replace(booking, uid="known"), replace(booking, kind="Secret")):
            with pytest.raises(Forbidden):
                await companions.remove("a", one)
