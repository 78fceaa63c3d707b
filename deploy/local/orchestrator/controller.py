"""A client for the calls of the controller's API that this orchestrator needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

CALL_SECONDS = 10.0
MOST_JOBS = 50
LOG_LINES = 200


class ControllerError(Exception):
    """The controller refused, or could not be reached; ``status`` is for the browser."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Controller:
    """Calls the controller as the orchestrator.

    Args:
        http: A client session whose base URL is the controller's.
        token: Returns a fresh service token.
    """

    def __init__(self, http: aiohttp.ClientSession, token: Callable[[], str]) -> None:
        self._http = http
        self._token = token

    async def submit(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Submit one job; the call can be repeated, since this process chooses the id."""
        response = await self._call("POST", "/v1/jobs", {"mode": "atomic", "items": [job]})
        return _only_item(response)

    async def jobs_of(self, user: str) -> list[dict[str, Any]]:
        """Return the jobs that *user* submitted last, newest first."""
        query = {"user": user, "order": "newest", "limit": str(MOST_JOBS)}
        response = await self._call("GET", "/v1/jobs", query=query)
        items: list[dict[str, Any]] = response["items"]
        return items

    async def job(self, job_id: str) -> dict[str, Any]:
        """Return one job."""
        return await self._call("GET", f"/v1/jobs/{job_id}")

    async def delete(self, job_id: str, *, by: str | None = None) -> None:
        """End a job in any state; *by* names the user who wants that."""
        await self._call("DELETE", f"/v1/jobs/{job_id}", query={"by": by} if by else {})

    async def extend(self, job_id: str, seconds: int) -> dict[str, Any]:
        """Give a job more time."""
        return await self._call("POST", f"/v1/jobs/{job_id}/extend", {"seconds": seconds})

    async def history(self, job_id: str) -> dict[str, Any]:
        """Return all attempts of a job, and all of its updates."""
        return await self._call("GET", f"/v1/jobs/{job_id}/history")

    async def log(self, job_id: str) -> str:
        """Return the end of the log of the job's first rank."""
        query = {"rank": "0", "tail": str(LOG_LINES)}
        response = await self._call("GET", f"/v1/jobs/{job_id}/logs", query=query)
        return str(response["text"])

    async def metrics(self, job_id: str) -> dict[str, Any]:
        """Return what a job uses, now and in the last minutes."""
        return await self._call("GET", f"/v1/jobs/{job_id}/metrics")

    async def tools(self, job_id: str) -> list[dict[str, Any]]:
        """Return the tools of a job."""
        response = await self._call("GET", f"/v1/jobs/{job_id}/tools")
        items: list[dict[str, Any]] = response["items"]
        return items

    async def attach(self, job_id: str, tool: str) -> None:
        """Attach a tool to the first rank of a job. A tool that has ended runs again."""
        await self._call("POST", f"/v1/jobs/{job_id}/tools", {"tool": tool})

    async def remove_tool(self, job_id: str, tool: str) -> None:
        """Remove a tool from a job's first rank."""
        await self._call("DELETE", f"/v1/jobs/{job_id}/tools/{tool}")

    async def revoke(self, sid: str, user: str) -> None:
        """End the open connections of *user* to a session, and all of the user's grants to it."""
        await self._call("POST", f"/v1/sessions/{sid}/revoke", {"sub": user})

    async def open_session(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Make a session; the response holds ``sid`` and ``hosts``."""
        return _only_item(await self._call("POST", "/v1/sessions", {"items": [item]}))

    async def session(self, sid: str) -> dict[str, Any]:
        """Return one session."""
        return await self._call("GET", f"/v1/sessions/{sid}")

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token()}"}
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        try:
            async with self._http.request(
                method, path, json=body, params=query, headers=headers, timeout=timeout
            ) as response:
                if response.content_type == "application/json":
                    content = await response.json()
                else:
                    content = {"text": await response.text(errors="replace")}
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ControllerError(
                503, "unreachable", "The controller cannot be reached."
            ) from error
        if response.status >= 400:
            code = str(content.get("code", response.status))
            raise ControllerError(response.status, code, str(content.get("message", "refused")))
        return content if isinstance(content, dict) else {"items": content}


def _only_item(response: Mapping[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = response["items"][0]
    return item
