"""Uses the orchestrator as one of its users would."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp

from deploy.local.smoke.failure import SmokeFailed

LOOK_SECONDS: Final = 0.1
OVER: Final = frozenset({"SUCCESS", "FAILURE", "EXPIRED"})


class User:
    """A user who is signed in.

    Args:
        http: A client with cookies of this user alone.
        url: The orchestrator's address.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def sign_in(self, name: str) -> None:
        """Sign in as *name*."""
        await self._call("POST", "/api/login", {"user": name})

    async def start(self, app: str) -> str:
        """Start *app*; return its job."""
        response = await self._call("POST", "/api/jobs", {"app": app})
        return str(response["id"])

    async def link(self, job: str) -> str:
        """Return an address that opens the job's app once."""
        return str((await self._call("POST", f"/api/jobs/{job}/open", {}))["url"])

    async def stop(self, job: str) -> None:
        """Stop a job."""
        await self._call("POST", f"/api/jobs/{job}/stop", {})

    async def until_running(self, job: str) -> None:
        """Return when the job runs.

        Raises:
            SmokeFailed: If the job is over instead.
        """
        while (shown := await self._job(job))["state"] != "RUNNING":
            if shown["state"] in OVER:
                raise SmokeFailed(f"the job is over: {shown['state']}, {shown['message']}")
            await asyncio.sleep(LOOK_SECONDS)

    async def until_over(self, job: str) -> None:
        """Return when the job is over, or its record is gone."""
        while True:
            if (await self._job(job, {"state": "SUCCESS"}))["state"] in OVER:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _job(self, job: str, absent: dict[str, Any] | None = None) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = (await self._call("GET", "/api/jobs"))["jobs"]
        for one in jobs:
            if one["id"] == job:
                return one
        if absent is None:
            raise SmokeFailed("the orchestrator does not know the job that it started")
        return absent

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async with self._http.request(method, self._url + path, json=body) as response:
            content: dict[str, Any] = await response.json()
            if response.status >= 400:
                text = content.get("message", "")
                raise SmokeFailed(f"{method} {path} was answered {response.status}: {text}")
            return content
