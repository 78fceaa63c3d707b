"""``/v1/sessions``: open, show, list, end and revoke sessions."""

from __future__ import annotations

from typing import Annotated, Final, Self

from aiohttp import web
from pydantic import ConfigDict, Field, model_validator

from controller.api.audit import audit
from controller.api.error_responses import ApiError, invalid, not_found, or_not_found
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import (
    DEFAULT_LIMIT,
    IDEMPOTENCY_KEY,
    MOST_ITEMS,
    QUOTED_KEY,
    Limit,
    PageCursor,
    Query,
    Word,
    is_given,
    read_key,
    read_place,
)
from controller.api.response_models import ResponseModel
from controller.jobs.spec.field_types import Name
from controller.jobs.spec.parameters import Strict
from controller.sessions.service import KeyReused, SessionAnswer, SessionState
from controller.sessions.session_requests import SessionItem, SessionsRefused
from controller.store.sessions.session_rows import SessionFilter

MOST_KID: Final = 255
"""The longest ``kid`` that the store holds."""


class OpenRequest(Strict):
    """Sessions to open: all or none."""

    items: Annotated[list[SessionItem], Field(min_length=1, max_length=MOST_ITEMS)]


class RevokeRequest(Strict):
    """Revokes the grants of one token, of one user, or, without any field, of everybody.

    A null alone does not mean everybody: it is what a client sends that has lost the name.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"maxProperties": 0}, is_given("jti"), is_given("sub")]}
    )

    jti: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = None
    sub: Name | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.jti is not None and self.sub is not None:
            raise ValueError("at most one of jti and sub can be given")
        if self.model_fields_set and self.jti is None and self.sub is None:
            raise ValueError("jti or sub must not be null; without both, all grants are revoked")
        return self


class SessionsQuery(Query):
    """Selects sessions, and a page of them."""

    job: Word | None = None
    user: Word | None = Field(default=None, description="The owner of the job.")
    state: list[SessionState] = Field(default_factory=list)
    after: PageCursor = Field(default="", description="`next` of the previous page.")
    limit: Limit = DEFAULT_LIMIT

    def filter(self) -> SessionFilter:
        """Return the filter for the store, which does not know which sessions are ready."""
        ended = None if not self.state else "ended" in self.state
        mixed = ended and len(set(self.state)) > 1
        return SessionFilter(job=self.job, user=self.user, ended=None if mixed else ended)


class SessionPage(ResponseModel):
    """A page of sessions, newest first."""

    items: list[SessionAnswer]
    next: str | None = Field(
        description="`after` of the next page; None on the last one. A page need not be full."
    )


class KeyAnswer(ResponseModel):
    """A key whose grants were revoked."""

    kid: str


@operation(
    "POST",
    "/v1/sessions",
    "openSessions",
    "Open sessions",
    statuses=(201, 200),
    headers={IDEMPOTENCY_KEY: QUOTED_KEY},
    errors=("key_reused",),
)
async def open_all(
    api: ApiParts, request: web.Request, body: OpenRequest
) -> tuple[list[SessionAnswer], int]:
    """Open one session per item, in order. A request with a known key opens none."""
    try:
        opened = await api.sessions.open(body.items, key=read_key(request))
    except SessionsRefused as refused:
        raise invalid(refused.problems) from None
    except KeyReused:
        raise ApiError("key_reused") from None
    for one in opened.views if opened.are_new else ():
        audit(request, "created", sid=one.sid, job=one.job, rank=one.rank, kind=one.kind)
    return opened.views, 201 if opened.are_new else 200


@operation("GET", "/v1/sessions", "listSessions", "List sessions")
async def find(api: ApiParts, _request: web.Request, query: SessionsQuery) -> SessionPage:
    """List sessions, newest first, a page at a time, with their connected users."""
    found, last = await api.sessions.find(
        query.filter(),
        states=query.state,
        after=read_place(query.after),
        limit=query.limit,
    )
    return SessionPage(items=found, next=None if last is None else str(last))


@operation("GET", "/v1/sessions/{sid}", "getSession", "Get a session")
async def show(api: ApiParts, request: web.Request) -> SessionAnswer:
    """Return one session, even if it has ended."""
    return or_not_found(await api.sessions.get(request.match_info["sid"]), "session")


@operation("DELETE", "/v1/sessions/{sid}", "endSession", "End a session and keep its record")
async def end(api: ApiParts, request: web.Request) -> SessionAnswer:
    """End one session. A repeated request changes nothing."""
    ended = or_not_found(await api.sessions.end(request.match_info["sid"]), "session")
    audit(request, "ended", sid=ended.sid, job=ended.job, reason="ended")
    return ended


@operation("POST", "/v1/sessions/{sid}/revoke", "revokeGrants", "Revoke grants to a session")
async def revoke(api: ApiParts, request: web.Request, body: RevokeRequest) -> SessionAnswer:
    """Revoke grants to a session. The session itself continues."""
    sid = request.match_info["sid"]
    revoked = or_not_found(await api.sessions.revoke(sid, jti=body.jti, sub=body.sub), "session")
    of_whom = {"jti": body.jti, "revoked_subject": body.sub}
    audit(request, "revoked", sid=sid, job=revoked.job, **of_whom)
    return revoked


@operation(
    "POST",
    "/v1/keys/{kid}/revoke",
    "revokeKey",
    "Revoke all grants of tokens that a key has signed",
)
async def revoke_key(api: ApiParts, request: web.Request) -> KeyAnswer:
    """Revoke the grants of all tokens that were signed with one key."""
    kid = request.match_info["kid"]
    if not 1 <= len(kid) <= MOST_KID or not kid.isprintable():
        raise not_found("key")
    await api.sessions.revoke_key(kid)
    audit(request, "revoked", kid=kid)
    return KeyAnswer(kid=kid)
