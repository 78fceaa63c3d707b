"""Tests that b9911c7's data goes on: nothing is lost or repeated, foreign objects stay as is."""

from __future__ import annotations

import base64
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controller.kube.kinds import PODS, SECRETS
from tests.controller.postgres import Postgres
from tests.controller.running import eventually
from tests.gateway.http import code_of
from tests.programs import RedisServer
from tests.recorded.names import api_gone, live_names, recorded
from tests.recorded.recording import INSTANCE
from tests.recorded.reopened import Reopened, app_at, foreign_objects, reopened

pytestmark = pytest.mark.timeout(400)

# Fields of a job that may change at any moment. All others must be as recorded.
CHANGING = {"state", "reason", "message", "attempt", "started_at", "finished_at", "expires_at",
            "queue_position", "exits", "revision", "retry", "uid"}  # fmt: skip
FINAL = ("SUCCESS", "FAILURE", "EXPIRED")
OVER = {"succeeded": "SUCCESS", "failed": "FAILURE", "expired": "EXPIRED", "unfunded": "FAILURE",
        "released": "SUCCESS"}  # fmt: skip
# State and attempt of each job once everything has gone on.
GOES_ON = {
    "web": ("RUNNING", 1), "caller": ("RUNNING", 1), "pair": ("RUNNING", 1),
    "tasks": ("RUNNING", 1), "resumed": ("RUNNING", 2), "between-start": ("RUNNING", 1),
    "restarting": ("RUNNING", 1), "evicted": ("RUNNING", 2), "resuming": ("RUNNING", 2),
    "accepted": ("RUNNING", 1), "queued": ("RUNNING", 1), "kept": ("RUNNING", 1),
    "prepared": ("RUNNING", 1), "suspended": ("RUNNING", 2), "suspending": ("SUSPENDED", 1),
    "canceling": ("SUCCESS", 1), "expiring": ("EXPIRED", 1), "between-complete": ("SUCCESS", 1),
}  # fmt: skip
GOES_ON |= {name: (state, 1) for name, state in OVER.items()}
# The description of b9911c7 named the schema of a job's own policies, which no response ever had.
# It also called streams of events strings, which tools took for the content of each event.
MENDED = {
    "/components/schemas/Retry/properties/policies/items/$ref: '#/components/schemas/Policy' "
    "is '#/components/schemas/PolicyView'",
    "/paths//v1/jobs/{id}/logs/get/responses/200/content/text/event-stream/schema/type",
    "/paths//v1/updates/get/responses/200/content/text/event-stream/schema/type",
}
NEVER_STOPPED = ("web", "caller", "pair", "tasks", "resumed", "between-start")


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
)
async def test_state_written_by_b9911c7_stays_usable(
    kind: str, tmp_path: Path, redis_server: RedisServer, request: pytest.FixtureRequest
) -> None:
    postgres: Postgres | None = (
        request.getfixturevalue("postgres") if kind == "postgresql" else None
    )
    async with reopened(kind, tmp_path, redis_server, postgres) as world:
        await world.gateway.start()
        await world.controller.start()
        await check_nothing_is_lost(world)
        await check_routes(world)
        await check_sessions_at_the_gateway(world)
        await go_on(world)
        await check_plugin_refuses(world)
        await check_secrets(world)
        await end_all(world)
        await check_the_whole_story(world)
        await check_live_names(world)
        assert await foreign_objects(world.admin) == world.foreign


async def check_nothing_is_lost(world: Reopened) -> None:
    """Check that everything recorded from the API is returned again, word by word."""
    facts = world.facts
    for job_id, reported in facts["jobs"].items():
        now = await world.controller.job(job_id)
        lost = {k: v for k, v in reported.items() if k not in CHANGING and now.get(k) != v}
        assert lost == {}, (job_id, now)
        if reported["state"] in FINAL:
            assert now == now | reported
        attempts = (await world.history(job_id))["attempts"]
        recorded = facts["history"][job_id]["attempts"]
        uids = [one["uid"] for one in attempts]
        assert [one["uid"] for one in recorded] == uids[: len(recorded)], job_id
    for name in ("updates", "usage"):
        reported, now = facts[name]["items"], (await world.page(name))["items"]
        # Later versions may return more fields of each.
        assert [one | was for one, was in zip(now, reported, strict=False)] == now[: len(reported)]
    for name in ("ledger", "acknowledged"):
        assert (await world.page("usage"))[name] == facts["usage"][name]
    for sid, reported in facts["sessions"].items():
        now = await world.call("GET", f"/v1/sessions/{sid}")
        assert now == now | reported | {"state": now["state"]}
    maintenance = await world.call("GET", "/v1/maintenance")
    assert (maintenance["mode"], maintenance["message"]) == ("paused", "an upgrade")
    assert "forgotten" not in facts["jobs"]
    assert "forgotten" not in await world.volcano_jobs()


async def check_routes(world: Reopened) -> None:
    """Check that every session that has not ended has a route, and that every revocation holds."""
    facts = world.facts
    going = {sid for sid, reported in facts["sessions"].items() if reported["ended_at"] is None}

    async def routed() -> bool:
        return going <= {one["sid"] for one in await world.routes.all()}

    await eventually(routed, what="a session is routed no more")
    found = {one["sid"]: one for one in await world.routes.all()}
    assert not {sid for sid in facts["sessions"] if sid not in going} & found.keys()
    site = facts["sids"]["site"]
    assert f"recorded-demo.{world.controller.settings['FUMAROLE_CONTROLLER_PUBLIC_URL'][8:]}" in {
        host for one in found.values() for host in one["hosts"]
    }
    assert found[site]["state"] == "ready"
    assert found[facts["sids"]["desk"]]["sealed"] is not None
    members = {row[3] for row in world.recording.commands if row[0] == "ZADD"}
    kept = await world.redis.zrange(f"fumarole:{{{INSTANCE}}}:revoked", 0, -1)
    assert members <= {one.decode() for one in kept}
    assert len(members) == 4


async def check_sessions_at_the_gateway(world: Reopened) -> None:
    """Check that the gateway routes users to their apps, and refuses revoked users."""
    sids, gateway = world.facts["sids"], world.gateway
    route = await world.routes.of(sids["site"])
    assert route is not None
    claims: dict[str, Any] = {"job": "web"}
    async with app_at(route["target"]["host"], route["target"]["port"]):

        async def opened() -> str | None:
            response = await gateway.post_token(
                sids["site"], gateway.signer.token(sids["site"], **claims)
            )
            return (
                response.headers["set-cookie"].partition(";")[0] if response.status == 303 else None
            )

        cookie = await eventually(opened, what=gateway.log()[-3000:])
        response = await gateway.ask(sids["site"], "GET", "/here", {"Cookie": cookie})
        assert (response.status, response.body) == (200, b"the app, at /here")
    # A one-hour token, issued before the revocation, however slow this machine is.
    past = int(time.time()) - 1800
    refused = {
        "jti": (sids["shared"], claims | {"jti": "recorded-jti"}),
        "sub": (sids["shared"], claims | {"sub": "mallory", "iat": past, "exp": past + 3600}),
    }
    for what, (sid, wrong) in refused.items():
        response = await gateway.post_token(sid, gateway.signer.token(sid, **wrong))
        assert response.status == 401, (what, response, response.body)
    gone = await gateway.post_token(sids["closed"], gateway.signer.token(sids["closed"], **claims))
    assert gone.status in (404, 410), (gone, code_of(gone))


async def go_on(world: Reopened) -> None:
    """Check that every job continues from its recorded state."""
    before = await world.volcano_jobs()
    world.start_kubelet()
    await world.make_room()
    await world.call("POST", "/v1/maintenance", {"action": "resume"})
    for job_id in ("kept", "suspended"):
        await world.call("POST", f"/v1/jobs/{job_id}/resume", expect=202)
    for job_id, (state, attempt) in GOES_ON.items():
        job = await world.controller.until(job_id, state, seconds=120)
        assert job["attempt"] == attempt, job
    after = await world.volcano_jobs()
    for job_id in NEVER_STOPPED:
        assert after[job_id]["metadata"]["uid"] == before[job_id]["metadata"]["uid"]
        recorded = before[job_id]["metadata"]["annotations"]
        assert recorded.items() <= after[job_id]["metadata"]["annotations"].items()
    sids = world.facts["sids"]
    for name in ("site", "shared", "shell", "early", "asleep"):
        await world.routes.until(sids[name], "ready")
    for pod in await world.admin.list(PODS, labels=f"fumarole.dev/instance={INSTANCE}"):
        labels = pod["metadata"]["labels"]
        assert labels["example.com/cost-centre"] == f"c-{labels['fumarole.dev/job']}"


async def check_plugin_refuses(world: Reopened) -> None:
    """Check that the third-party plugin still refuses jobs with its messages, in both ways."""
    job = {"id": "new", "owner": {"user": "ada"}, "image": "busybox", "resources": {"cpu": 1}}
    for labels, why in (({}, "is missing"), ({"cost-centre": "closed"}, "is closed")):
        refused = await world.call("POST", "/v1/jobs", {"items": [job | {"labels": labels}]}, 422)
        assert refused["details"]["problems"] == [
            {"path": "items[0].labels.cost-centre", "message": why}
        ]


async def check_secrets(world: Reopened) -> None:
    """Check that secrets sealed by b9911c7 reach the jobs that are submitted only now."""
    for job_id in ("accepted", "prepared"):
        (secret,) = await world.admin.list(SECRETS, labels=f"fumarole.dev/job={job_id}")
        values = {base64.b64decode(one) for one in secret["data"].values()}
        assert b"open sesame" in values


async def end_all(world: Reopened) -> None:
    """End all jobs."""
    running = [job_id for job_id, (state, _) in GOES_ON.items() if state == "RUNNING"]
    for job_id in running:
        world.ends[job_id] = 0
    await world.call("DELETE", "/v1/jobs/suspending", expect=202)
    for job_id in (*running, "suspending"):
        await world.controller.until(job_id, *FINAL, seconds=120)


async def check_the_whole_story(world: Reopened) -> None:
    """Check that each job ended once, each second is charged once, and each hook ran once."""
    facts, updates = world.facts, (await world.page("updates"))["items"]
    numbers = [one["id"] for one in updates]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    last = {one["job"]: one["state"] for one in updates}
    assert last == {
        job_id: state if state in FINAL else "SUCCESS" for job_id, (state, _) in GOES_ON.items()
    }
    ended = Counter(one["job"] for one in updates if one["state"] in FINAL)
    assert set(ended.values()) == {1}
    ledger = (await world.page("usage"))["items"]
    assert len({(one["uid"], one["rank"], one["period"]) for one in ledger}) == len(ledger)
    entries: dict[tuple[str, int], list[Any]] = {}
    for one in ledger:
        entries.setdefault((one["uid"], one["rank"]), []).append(one)
    for found in entries.values():
        assert [one["period"] for one in found] == list(range(len(found)))
        assert [one["final"] for one in found] == [False] * (len(found) - 1) + [True], found
    for job_id, (_, attempt) in GOES_ON.items():
        attempts = (await world.history(job_id))["attempts"]
        assert [one["attempt"] for one in attempts] == list(range(1, attempt + 1)), job_id
    noted = Counter(tuple(line.split()[:3]) for line in world.hooks())
    told_before = Counter(tuple(line.split()[:3]) for line in facts["hooks"])
    for job_id in GOES_ON.keys() - OVER.keys():
        assert noted["cleanup", job_id, "0"] == 1, (job_id, noted)
    for job_id, (_, attempt) in GOES_ON.items():
        for hook in ("start", "complete"):
            both = noted[hook, job_id, str(attempt)] + told_before[hook, job_id, str(attempt)]
            assert both == 1, (job_id, hook, noted)
    assert any(hook == "monitoring" for hook, *_ in noted)


async def check_live_names(world: Reopened) -> None:
    """Check that the API's fields and every metric, with its labels, still exist."""
    today = await live_names(world.controller, world.gateway)
    assert set(api_gone(recorded("openapi"), today["openapi"])) <= MENDED
    for page in ("controller_metrics", "gateway_metrics"):
        for name, then in recorded(page).items():
            assert today[page][name]["type"] == then["type"]
            labels = today[page][name]["labels"]
            assert not labels or set(then["labels"]) <= set(labels), name
