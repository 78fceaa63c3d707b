"""Decides which user may open which app. Only the orchestrator makes this decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, quote

from deploy.local.apps.catalogue import APPS
from deploy.local.orchestrator.controller import Controller, ControllerError
from deploy.local.orchestrator.tokens import Tokens

APP_LABEL = "app"


class Sessions:
    """Opens sessions of a user's own jobs, of those shared with the user, and of no others.

    Args:
        controller: Makes the sessions.
        tokens: Signs the tokens that the gateway verifies.
        gateway: The gateways' public URL.
        clock: Unix seconds.
    """

    def __init__(
        self,
        controller: Controller,
        tokens: Tokens,
        *,
        gateway: SplitResult,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._tokens = tokens
        self._gateway = gateway
        self._clock = clock
        # One session for each job and endpoint. Opened again it has the same address, and the app
        # in the browser finds what it stored there. After a restart of this process there is a new
        # one.
        self._sid_of: dict[tuple[str, str], str] = {}
        # The other users who may open a job. A real orchestrator stores this.
        self.shared: dict[str, set[str]] = {}

    async def job_of(self, job_id: str, user: str) -> dict[str, Any]:
        """Return the job if it is *user*'s.

        Raises:
            ControllerError: 404 if it does not exist or is another user's. The response does not
                say which of the two.
        """
        job = await self._controller.job(job_id)
        if job["owner"]["user"] != user:
            raise _no_such_job()
        return job

    async def link(self, job_id: str, user: str, *, tool: str | None = None) -> str:
        """Return the address at which *user* opens the job's app: once, within a minute.

        A *tool* is another app of the demo, opened in place of the job's own: the shell opens in
        any job. Only the job's owner may open a tool.
        """
        job = await self._controller.job(job_id)
        shared = user in self.shared.get(job_id, ())
        if job["owner"]["user"] != user and (tool is not None or not shared):
            raise _no_such_job()
        app = APPS.get(tool or job["labels"].get(APP_LABEL, ""))
        if app is None or (tool is not None and app.kind != "terminal"):
            raise ControllerError(404, "no_such_app", "This job has nothing to open.")
        return await self._link(job_id, user, app.kind, app.opens, start_path=app.start_path)

    async def link_to_tool(self, job_id: str, user: str, tool: str) -> str:
        """Return the address at which *user* opens *tool*, which is attached to the user's job."""
        await self.job_of(job_id, user)
        return await self._link(job_id, user, "web", {"endpoint": f"tool:{tool}"}, start_path="/")

    async def _link(
        self, job_id: str, user: str, kind: str, opens: Mapping[str, Any], *, start_path: str
    ) -> str:
        session = await self._session(job_id, opens)
        claims = {"sid": session["sid"], "job": job_id, "rank": 0, "kind": kind}
        token = self._tokens.for_session(claims, user=user, now=self._clock())
        return make_link(self._gateway, session["hosts"][0], token, start_path=start_path)

    async def share(self, job_id: str, user: str, *, other: str, allowed: bool) -> None:
        """Allow or forbid *other* to open the job's app. Forbidding also ends open connections."""
        await self.job_of(job_id, user)
        others = self.shared.setdefault(job_id, set())
        if allowed:
            others.add(other)
            return
        others.discard(other)
        for (job, _), sid in list(self._sid_of.items()):
            if job == job_id:
                await self._controller.revoke(sid, other)

    async def shared_with(self, user: str) -> list[dict[str, Any]]:
        """Return the jobs of other users that *user* may open."""
        jobs = []
        for job_id in [job_id for job_id, users in self.shared.items() if user in users]:
            try:
                jobs.append(await self._controller.job(job_id))
            except ControllerError as error:
                if error.status != 404:
                    raise
                self.shared.pop(job_id, None)
        return jobs

    async def _session(self, job_id: str, opens: Mapping[str, Any]) -> dict[str, Any]:
        key = job_id, str(sorted(opens.items()))
        known = self._sid_of.get(key)
        if known is not None:
            try:
                session = await self._controller.session(known)
            except ControllerError as error:
                if error.status not in (404, 410):
                    raise
            else:
                # The session of a tool ends when the tool is removed. The tool may have been
                # attached again.
                if session["state"] != "ended":
                    return session
        session = await self._controller.open_session({"job": job_id, "rank": 0, **opens})
        self._sid_of[key] = session["sid"]
        return session


def make_link(gateway: SplitResult, host: str, token: str, *, start_path: str) -> str:
    """Return the address that spends *token* and enters the app at *start_path*."""
    port = f":{gateway.port}" if gateway.port else ""
    # In the fragment, which no server, log or referrer sees.
    fragment = f"token={token}&next={quote(start_path, safe='')}"
    return f"{gateway.scheme}://{host}{port}/.fumarole/open#{fragment}"


def _no_such_job() -> ControllerError:
    return ControllerError(404, "not_found", "You have no such job.")
