"""Provides jobs for the API, and the calls that submit and list them."""

from __future__ import annotations

from typing import Any

from tests.controller.api.conftest import Api


def make_job(job_id: str = "j1", **fields: Any) -> dict[str, Any]:
    return {"id": job_id, "owner": {"user": "ada"}, "image": "shell"} | fields


async def submit(api: Api, *jobs: Any, mode: str = "atomic") -> tuple[int, dict[str, Any]]:
    response = await api.client.post("/v1/jobs", json={"mode": mode, "items": list(jobs)})
    return response.status, await response.json()


async def ids(api: Api, query: str = "") -> list[str]:
    response = await api.client.get(f"/v1/jobs{query}")
    assert response.status == 200, await response.text()
    return [job["id"] for job in (await response.json())["items"]]
