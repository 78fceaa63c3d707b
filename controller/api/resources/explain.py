"""``/v1/explain``: explains why a session or a job cannot be used."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from controller.api.error_responses import invalid
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import Query, Word
from controller.explain.judgements import Explanation
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import Problem

Sid = Annotated[str, Field(pattern="^[a-z2-7]{26}$")]


class ExplainQuery(Query):
    """Selects the session or the job to explain."""

    sid: Sid | None = None
    job: Annotated[Word, Field(max_length=64)] | None = None


class ExplainRequest(Strict):
    """A session token, and the session that it should open; by default the token's own."""

    token: Annotated[str, Field(max_length=16384, pattern=r"^[\x00-\x7f]+$")]
    sid: Sid | None = None


@operation("GET", "/v1/explain", "explain", "Explain why a session or a job cannot be used")
async def look(api: ApiParts, _request: web.Request, query: ExplainQuery) -> Explanation:
    """Explain a session or a job."""
    if (query.sid is None) == (query.job is None):
        raise invalid([Problem("sid", "either sid or job must be given")])
    if query.sid is not None:
        return await api.explainer.session(query.sid)
    return await api.explainer.job(query.job or "")


@operation("POST", "/v1/explain", "explainToken", "Explain why a token does not open its session")
async def look_with_token(
    api: ApiParts, _request: web.Request, body: ExplainRequest
) -> Explanation:
    """Explain a session by a token for it. The token is not stored."""
    return await api.explainer.session(body.sid, token=body.token)
