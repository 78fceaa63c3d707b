"""A client of the controller's API, as far as this orchestrator needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

CALL_SECONDS = 10.0


class ControllerError(Exception):
    """The controller refused, or could not be reached; ``status`` is what to tell the browser."""

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
        """Submit one job. The id is ours, so doing it again after a lost answer is safe."""
        answer = await self._call("POST", "/v1/jobs", {"mode": "atomic", "items": [job]})
        return _only_item(answer)

    async def jobs_of(self, user: str) -> list[dict[str, Any]]:
        """Return the jobs that *user* owns."""
        answer = await self._call("GET", "/v1/jobs", query={"user": user})
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def job(self, job_id: str) -> dict[str, Any]:
        """Return one job."""
        return await self._call("GET", f"/v1/jobs/{job_id}")

    async def delete(self, job_id: str) -> None:
        """End a job, whatever state it is in."""
        await self._call("DELETE", f"/v1/jobs/{job_id}")

    async def open_session(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Make a session: the answer holds ``sid`` and ``hosts``."""
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
            ) as answer:
                content = await answer.json() if answer.content_type == "application/json" else {}
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ControllerError(
                503, "unreachable", "The controller cannot be reached."
            ) from error
        if answer.status >= 400:
            code = str(content.get("code", answer.status))
            raise ControllerError(answer.status, code, str(content.get("message", "refused")))
        return content if isinstance(content, dict) else {"items": content}


def _only_item(answer: Mapping[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = answer["items"][0]
    return item
