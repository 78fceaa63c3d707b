"""Admission: it carries out the access decisions of the core.

A decision may require that a token is verified or marked as used, or that the route table is
repaired. Each runs as a background task. Then the request is decided again with the result.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Coroutine
from typing import Any, Final, assert_never

from msgspec.structs import replace

from gateway.core.access.access_right import AccessRight
from gateway.core.access.decision import (
    OPEN_PATH,
    OWN_PREFIX,
    SIGN_OUT_PATH,
    Access,
    Decision,
    Forward,
    OpenBridge,
    Proof,
    Refuse,
    RepairTable,
    ServePage,
    VerifyToken,
)
from gateway.core.access.opening import OpeningRefused
from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.downstream.end_notice import make_notice, notice_starts_at, shows_notice
from gateway.core.http.fields import Fields
from gateway.core.http.framing import request_body
from gateway.core.http.headers import (
    NO_UPSTREAM_HEAD,
    ForwardedInfo,
    bridge_head,
    forwarded_fields,
    page_head,
    upstream_head,
)
from gateway.core.http.request_reader import MAX_SECTIONS, CachedSection, RequestHead
from gateway.core.limits.overload import Step
from gateway.relay.context import Context, UpgradeRequest
from gateway.relay.http.downstream import DownstreamConnection
from gateway.relay.http.page_connection import PageConnection
from gateway.relay.transports import resume_reading
from shared.bounded import BoundedDict
from shared.routes.table import RouteTable
from shared.tokens import SessionClaims

_SHEDDING: Final = Step.UNAUTHENTICATED
_REFUSING: Final = Step.REQUESTS
_SAFE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_OUTLIVING: Final = frozenset({SIGN_OUT_PATH, OPEN_PATH})
"""Pages whose responses must survive the end of the request's right. A sign-out ends that right
itself. A user who opens a session again uses a token, which is marked as used by then."""


class Admission:
    """Admits the requests of all connections of a data path."""

    def __init__(self, context: Context, access: Access) -> None:
        self._context = context
        self._access = access
        self._upgrades: BoundedDict[CachedSection, CachedDecision] = BoundedDict(MAX_SECTIONS)
        """The last decision by a grant on an upgrade with each section.

        Browsers open one WebSocket after the other with the same fields, each on a new connection.
        A decision without a grant depends on the client's address.
        """

    def admit(self, connection: DownstreamConnection, request: RequestHead) -> None:
        """Relay or hand over the request of *connection*, or refuse it."""
        context = self._context
        if context.overload.step is _REFUSING:
            connection.refuse("gateway_overloaded")
            return
        table = context.holder.usable_table
        if table is None:
            self._admit_without_table(connection, request)
            return
        kept, fields, method = connection.decision, request.fields, request.start.method
        if kept is not None and kept.covers(request, table, context.wall()):
            if kept.fields is fields and kept.method == method:
                if kept.is_user_input:
                    _note_input(kept.access_right, request)
                connection.admitted(kept.head)
                return
            if kept.has_same_provenance(request) or self._access.is_allowed_origin(
                kept.access_right, method, fields.provenance
            ):
                self._relay(connection, request, kept)
                return
        if kept is not None:
            connection.drop_decision()
        if fields.websocket and self._admit_known_upgrade(connection, request, table):
            return
        if request.start.target.startswith(OWN_PREFIX) and self._serve_asset(connection, request):
            return
        self._decide(connection, request)

    def _admit_known_upgrade(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        table: RouteTable,
    ) -> bool:
        """Relay an upgrade by the decision on an earlier one with the same fields, if it holds."""
        known = None if request.cached is None else self._upgrades.get(request.cached)
        if (
            known is None
            or not known.covers_upgrade(request, table, self._context.wall())
            or not self._context.live.has_room(known.access_right)
        ):
            return False
        client = sys.intern(connection.client_address(request))
        connection.cache_decision(known.for_client(client))
        connection.notice = None
        connection.admitted(known.head.for_client(client, request.fields.socket_key))
        return True

    def _admit_without_table(self, connection: DownstreamConnection, request: RequestHead) -> None:
        if self._context.holder.stale:
            connection.drop_decision()
            self._run(connection, self._repair_after_suspension(connection, request))
        elif not self._serve_asset(connection, request):
            connection.refuse("bus_lost")

    def _serve_asset(self, connection: DownstreamConnection, request: RequestHead) -> bool:
        page = self._access.find_asset(request)
        if page is None:
            return False
        self._serve_page(connection, request, page, connection.client_address(request))
        return True

    def _decide(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        *,
        proof: Proof | None = None,
        marked: bool = False,
        repaired: bool = False,
    ) -> None:
        table = self._context.holder.table
        # The process may also have been suspended during a background task.
        if table is None or self._context.holder.stale:
            connection.refuse("bus_lost")
            return
        decision = self._access.decide(
            request, table=table, now=self._context.wall(), proof=proof, repaired=repaired
        )
        self._carry_out(connection, request, decision, table, marked=marked, proof=proof)

    def _carry_out(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        decision: Decision,
        table: RouteTable,
        *,
        marked: bool,
        proof: Proof | None,
    ) -> None:
        if (
            self._context.overload.step >= _SHEDDING
            and not connection.was_admitted
            and not _has_credential(decision)
        ):
            connection.refuse("gateway_overloaded")
            return
        match decision:
            case Forward() | OpenBridge() | ServePage():
                if decision.claims is not None and not marked:
                    self._run(connection, self._mark_used(connection, request, decision.claims))
                else:
                    self._proceed(connection, request, decision, table)
            case Refuse(refusal=refusal):
                self._record(connection, request, refusal, proof=proof)
                connection.refuse(refusal)
            case VerifyToken(token=token):
                remembered = self._context.bearer.remembered(token)
                if remembered is not None:
                    self._decide(connection, request, proof=remembered, marked=True)
                else:
                    self._run(connection, self._verify_token(connection, request, token))
            case RepairTable():
                self._run(connection, self._repair_table(connection, request))
            case _:
                assert_never(decision)

    # Background tasks. A connection that closes, or whose right ends, cancels its task.

    def _run(self, connection: DownstreamConnection, task: Coroutine[Any, Any, None]) -> None:
        connection.task = self._context.background_tasks.spawn_logged(task, failed=connection.reset)

    async def _verify_token(
        self, connection: DownstreamConnection, request: RequestHead, token: str
    ) -> None:
        proof: Proof
        try:
            proof = await self._context.bearer.verify(
                token, address=connection.client_address(request)
            )
        except OpeningRefused as refused:
            proof = REFUSALS[refused.code]
        connection.task = None
        self._decide(connection, request, proof=proof)

    async def _mark_used(
        self, connection: DownstreamConnection, request: RequestHead, claims: SessionClaims
    ) -> None:
        """Mark the token as used and decide again: the state may have changed meanwhile."""
        try:
            await self._context.bearer.mark(claims)
        except OpeningRefused as refused:
            connection.task = None
            self._record(connection, request, REFUSALS[refused.code], proof=claims)
            connection.refuse(refused.code)
            return
        connection.task = None
        self._decide(connection, request, proof=claims, marked=True)

    async def _repair_after_suspension(
        self, connection: DownstreamConnection, request: RequestHead
    ) -> None:
        await self._context.holder.repair()
        connection.task = None
        if self._context.holder.serving:
            self._decide(connection, request)
        else:
            connection.refuse("bus_lost")

    async def _repair_table(self, connection: DownstreamConnection, request: RequestHead) -> None:
        await self._context.holder.repair()
        connection.task = None
        self._decide(connection, request, repaired=True)

    # Proceeding

    def _proceed(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        decision: Forward | OpenBridge | ServePage,
        table: RouteTable,
    ) -> None:
        client = connection.client_address(request)
        access_right = access_right_of(decision)
        if access_right is not None:
            # Interned: all connections of one user share the string.
            access_right.address = sys.intern(client)
            if not self._context.live.has_room(access_right):
                refusal = REFUSALS["too_many_connections"]
                self._record(connection, request, refusal, proof=decision.claims)
                connection.refuse(refusal)
                return
        match decision:
            case Forward(access_right=access_right, claims=claims):
                reusable = claims is None and not request.fields.websocket
                cached = self._cached(request, access_right, table, client, reusable=reusable)
                if cached is None:
                    connection.refuse("session_starting")
                    return
                if access_right.grant is not None:
                    connection.reader.cache_section()
                    # Whether a service worker is allowed depends on its path.
                    alike = request.fields.websocket and not request.fields.service_worker
                    if alike and claims is None and request.cached is not None:
                        self._upgrades[request.cached] = cached
                connection.cache_decision(cached)
                self._relay(connection, request, cached)
            case OpenBridge(access_right=access_right):
                self._connect(connection, request, access_right)
            case ServePage():
                self._serve_page(connection, request, decision, client)

    def _record(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        refusal: Refusal,
        *,
        proof: Proof | None,
    ) -> None:
        """Record in the audit log that *request* is refused, with its sender if proven."""
        table = self._context.holder.table
        if table is None:
            return
        host = self._context.site.host_of(request.fields.host)
        sid = self._context.site.sid_of(host) if host is not None else None
        self._context.audit.refused(
            refusal,
            operation="connect" if request.fields.websocket else "request",
            address=connection.client_address(request),
            sid=sid,
            route=table.route(sid) if sid is not None else None,
            who=self._access.proven_sender(request, proof, self._context.wall()),
        )

    def _cached(
        self,
        request: RequestHead,
        access_right: AccessRight,
        table: RouteTable,
        client: str,
        *,
        reusable: bool,
    ) -> CachedDecision | None:
        target = access_right.route.target
        if target is None:
            return None
        user = access_right.grant.sub if access_right.grant is not None else None
        assertions, now = self._context.assertions, self._context.wall()
        assertion = None if assertions is None else assertions.for_request(access_right, now)
        from_then = math.inf  # an upgrade is no navigation, so that it gets no notice
        if not request.fields.websocket:
            from_then = notice_starts_at(access_right, self._context.end_notice_seconds)
        info = ForwardedInfo(
            scheme=self._context.site.scheme,
            user=user,
            assertion=assertion.value if assertion is not None else None,
        )
        return CachedDecision.make(
            access_right=access_right,
            target=target,
            table=table,
            # On a public host no user is known: connections are shared by address at most.
            user=f"sub {user}" if user is not None else f"address {client}",
            forwarded=forwarded_fields(request.fields.host, info),
            reusable=reusable,
            assertion=assertion,
            notice=make_notice(access_right) if now >= from_then else None,
            until=from_then if now < from_then else math.inf,
        )

    def _relay(
        self, connection: DownstreamConnection, request: RequestHead, cached: CachedDecision
    ) -> None:
        fields, method = request.fields, request.start.method
        # An idle connection would keep a large head by its decision.
        is_kept = connection.reader.section is not None
        cached.fields = fields if is_kept else None
        cached.method = method
        cached.is_user_input = _is_user_input(method, fields)
        if cached.is_user_input:
            _note_input(cached.access_right, request)
        # The notice holds for all alike requests; any other request passes here.
        connection.notice = cached.notice
        if cached.notice is not None and not shows_notice(
            cached.notice, request, site=self._context.site
        ):
            connection.notice = None
        head = upstream_head(fields, cached.forwarded, path_prefix=cached.path_prefix)
        client = cached.access_right.address
        if fields.websocket:
            cached.head, head = head, head.for_client(client, fields.socket_key)
        else:
            head = head.for_client(client)
            cached.head = head if is_kept else NO_UPSTREAM_HEAD
        connection.admitted(head)

    def _connect(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        access_right: AccessRight,
    ) -> None:
        offered = (request.fields.socket_protocols or b"").decode("latin-1").split(",")
        bridge = self._context.bridges[access_right.route.kind](
            UpgradeRequest(
                head=bridge_head(request),
                protocols=tuple(name.strip() for name in offered if name.strip()),
                access_right=access_right,
                context=self._context,
            )
        )
        trailing, full = connection.inbox, connection.write_full
        transport = connection.detach()
        if transport is None:
            return
        transport.set_protocol(bridge)
        bridge.connection_made(transport)
        if full:
            bridge.pause_writing()
        resume_reading(transport)
        if trailing:
            bridge.data_received(trailing)

    def _serve_page(
        self,
        connection: DownstreamConnection,
        request: RequestHead,
        decision: ServePage,
        client: str,
    ) -> None:
        trailing, full = connection.inbox, connection.write_full
        head = page_head(request)
        transport = connection.detach()
        if transport is None:
            return
        page = PageConnection(
            context=self._context,
            browser=transport,
            page=self._context.make_page(),
            body=request_body(request.fields),
            right=None if request.path in _OUTLIVING else access_right_of(decision),
            key=connection.key,
            writable=not full,
        )
        self._context.pages.add(page)
        resume_reading(transport)
        page.start(replace(decision, client_address=client), head, trailing)


def _is_user_input(method: bytes, fields: Fields) -> bool:
    """Return whether a user has caused such a request, as far as can be seen; for display only.

    A navigation counts, and every method that changes state. A GET may be the app's polling.
    """
    causes = method not in _SAFE or fields.provenance.mode == b"navigate"
    return causes and not fields.websocket


def _note_input(access_right: AccessRight, request: RequestHead) -> None:
    """Record user input; Jupyter's clients mark requests that are none with a parameter."""
    # Not with "in": for bytes that are no number it creates an exception first.
    if request.start.target.find(b"no_track_activity=1") < 0:
        access_right.activity.input = True


def _has_credential(decision: Decision) -> bool:
    """Return whether *decision* has a valid credential, or one to be verified."""
    match decision:
        case VerifyToken() | RepairTable():
            return True
        case Forward() | OpenBridge() | ServePage():
            access_right = access_right_of(decision)
            return access_right is not None and access_right.grant is not None
        case _:
            return False


def access_right_of(decision: Forward | OpenBridge | ServePage) -> AccessRight | None:
    """Return the right by which *decision* admits a request; None if it needs none."""
    if not isinstance(decision, ServePage):
        return decision.access_right
    if decision.route is None or decision.grant is None:
        return None
    return AccessRight(route=decision.route, host=decision.host, grant=decision.grant)
