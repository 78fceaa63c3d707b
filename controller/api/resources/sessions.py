"""``/v1/sessions``: open, show, list, end and revoke sessions."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

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
from controller.jobs.spec.field_types import ENDPOINT_PATTERN, JobId, Name, Port
from controller.jobs.spec.parameters import Strict
from controller.sessions.service import KeyReused, SessionAnswer
from controller.sessions.session_requests import CLIPBOARD_OF_WEB, SessionRequest, SessionsRefused
from controller.store.sessions.session_rows import SessionFilter
from shared.routes.route import Clipboard

MOST_KID: Final = 255
"""The longest ``kid`` that the store holds."""

EndpointOrTool = Annotated[str, Field(pattern=f"^(tool:)?{ENDPOINT_PATTERN[1:]}")]
"""An endpoint of the job, or ``tool:<name>`` for a tool that is attached to the rank."""


class SessionItem(Strict):
    """An endpoint of a rank, by its name or by its kind; a web or VNC kind needs a port.

    The endpoint ``tool:<name>`` leads to a tool that is attached to the rank.
    """

    job: JobId
    rank: Annotated[int, Field(ge=0, le=2**31)] = 0
    endpoint: EndpointOrTool | None = None
    kind: Literal["web", "vnc", "terminal"] | None = None
    port: Port | None = None
    clipboard: Clipboard | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.endpoint is None) == (self.kind is None):
            raise ValueError("either an endpoint or a kind must be given")
        has_port = self.kind in ("web", "vnc")
        if has_port != (self.port is not None):
            raise ValueError("a port is required for the kinds web and vnc, and refused otherwise")
        if self.kind == "web" and self.clipboard not in (None, "both"):
            raise ValueError(CLIPBOARD_OF_WEB)
        return self


class OpenRequest(Strict):
    """Sessions to open: all or none."""

    items: Annotated[list[SessionItem], Field(min_length=1, max_length=MOST_ITEMS)]


class RevokeRequest(Strict):
    """Revokes the grants of one token, of one user, or, with neither, of everybody."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"allOf": [is_given("jti"), is_given("sub")]}}
    )

    jti: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = None
    sub: Name | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.jti is not None and self.sub is not None:
            raise ValueError("at most one of jti and sub can be given")
        return self


class SessionsQuery(Query):
    """Selects sessions, and a page of them."""

    job: Word | None = None
    user: Word | None = Field(default=None, description="The owner of the job.")
    state: list[Literal["starting", "ready", "ended"]] = Field(default_factory=list)
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
    sessions = [SessionRequest(**item.model_dump()) for item in body.items]
    try:
        opened = await api.sessions.open(sessions, key=read_key(request))
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
