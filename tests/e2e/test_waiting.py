"""Tests what the pages show about a queued job, in a real browser."""

from __future__ import annotations

import json
import secrets
from functools import partial
from typing import Any

import pytest
from playwright.async_api import expect

from deploy.local.system import LocalSystem
from shared.bus import Keys, connect
from tests.controller.running import eventually
from tests.e2e.conftest import Visit
from tests.e2e.test_tools import orchestrator

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(600),
    # Queue positions are computed every 30 s.
    pytest.mark.long,
]


async def status_of(system: LocalSystem, sid: str) -> dict[str, Any] | None:
    """Return the job status in a session's route."""
    client = connect(system.layout.redis.urls["controller"])
    try:
        raw = await client.hget(Keys(system.layout.cluster.instance).routes, sid)
    finally:
        await client.aclose()
    status: dict[str, Any] | None = json.loads(raw)["status"] if raw else None
    return status


async def test_a_start_page_shows_the_place_in_the_queue_while_it_is_open(
    system: LocalSystem, visit: Visit
) -> None:
    if system.cluster is None:
        pytest.skip("the cluster's room has to be known")
    run, job = secrets.token_hex(3), {"owner": {"user": "ada"}, "image": "python"}
    # Each job takes 40 of 64 processors: one runs, and the others wait in the order of their age.
    shape = {
        "resources": {"cpu": 40, "memory": "64Mi"},
        "invocation": {"command": ["sleep", "900"]},
    }
    names = [f"{name}-{run}" for name in ("full", "first", "second")]
    async with orchestrator(system) as asked:

        async def stands(name: str, *, as_: tuple[str, str | None]) -> bool:
            body = await asked.call("GET", f"/v1/jobs/{name}")
            return (body["state"], body["reason"]) == as_

        standing: list[tuple[str, str | None]] = [("RUNNING", None), *[("IN_QUEUE", "queued")] * 2]
        for name, as_ in zip(names, standing, strict=True):
            await asked.call("POST", "/v1/jobs", {"items": [{"id": name} | job | shape]})
            await eventually(partial(stands, name, as_=as_), seconds=120, what=f"{name}: not {as_}")
        items = [{"job": name, "rank": 0, "kind": "terminal"} for name in names[1:]]
        first, second = (await asked.call("POST", "/v1/sessions", {"items": items}))["items"]
        page = await (await visit()).new_page()
        await page.goto(asked.link(second, "/"))
        heading = page.get_by_role("heading", level=1)
        await expect(heading).to_contain_text("is waiting in the queue")
        place = page.locator("#status")
        await expect(place).to_contain_text("It is number 2 in the queue.", timeout=150_000)
        seen = await status_of(system, second["sid"])
        assert seen is not None
        assert seen["position"] == 2
        # Nobody has the other session open, so its position was not computed.
        unseen = await status_of(system, first["sid"])
        assert unseen is not None
        assert unseen["phase"] == "queued"
        assert unseen.get("position") is None
        await asked.call("DELETE", f"/v1/jobs/{names[1]}")
        await expect(place).to_contain_text("It is number 1 in the queue.", timeout=150_000)
        for name in names:
            await asked.call("DELETE", f"/v1/jobs/{name}")
        await expect(heading).to_contain_text("was stopped")
