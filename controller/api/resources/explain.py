"""``/v1/explain``: why a session or a job cannot be used."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from controller.api.error_responses import invalid
from controller.api.operations import offered
from controller.api.parts import ApiParts
from controller.api.requests import Query, Word
from controller.explain.judgements import Explanation
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import Problem

Sid = Annotated[str, Field(pattern="^[a-z2-7]{26}$")]


class ExplainQuery(Query):
    """The session or the job that is to be explained."""

    sid: Sid | None = None
    job: Annotated[Word, Field(max_length=64)] | None = None


class ExplainRequest(Strict):
    """A session's token, and which session it is to open; without one, the token's own."""

    token: Annotated[str, Field(max_length=16384, pattern=r"^[\x00-\x7f]+$")]
    sid: Sid | None = None


@offered("GET", "/v1/explain", "explain", "Say why a session or a job cannot be used")
async def look(api: ApiParts, _request: web.Request, wanted: ExplainQuery) -> Explanation:
    """Explain a session or a job."""
    if (wanted.sid is None) == (wanted.job is None):
        raise invalid([Problem("sid", "either sid or job must be given")])
    if wanted.sid is not None:
        return await api.explainer.session(wanted.sid)
    return await api.explainer.job(wanted.job or "")


@offered("POST", "/v1/explain", "explainToken", "Say why a token does not open its session")
async def look_with_token(
    api: ApiParts, _request: web.Request, asked: ExplainRequest
) -> Explanation:
    """Explain a session by a token for it, which is kept nowhere."""
    return await api.explainer.session(asked.sid, token=asked.token)
