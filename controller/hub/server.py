"""The hub's HTTP server: gateways attach at ``/terminals/<sid>``; and the role as a whole."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

from controller.hub.attached import Attached, make_socket, refuse
from controller.hub.claims import Claims, TokenSpent, TooManyTokens, holder_of
from controller.hub.clients import Clients
from controller.hub.held import HeldShells, NoSuchShell, NotHeld
from controller.hub.protocol import SUBPROTOCOL, Resume, read_name, read_resume
from controller.hub.scrollback import Scrollbacks
from controller.hub.shell import Shell
from controller.kube.exec import ExecFailed, Executor
from controller.sessions.terminals import TerminalSessions
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import Hub
from shared.errors import TokenRefused
from shared.link import Attach
from shared.runtime.listeners import Connection, listening
from shared.settings import is_unspecified

Address = tuple[str, int]

RETRY_SECONDS: Final = 2
STOP_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class AttachHandler:
    """Attaches gateways that present a token for a terminal of this hub."""

    def __init__(self, claims: Claims, shells: HeldShells, registry: CollectorRegistry) -> None:
        self._claims = claims
        self._shells = shells
        self.clients = Clients(
            Counter(
                "fumarole_hub_shed_clients",
                "Clients disconnected because all input together takes too much memory",
                registry=registry,
            )
        )
        self._attaches = Counter(
            "fumarole_hub_attaches", "Attach requests by HTTP status", ["answer"], registry=registry
        )
        Gauge("fumarole_hub_shells", "Running shells", registry=registry).set_function(
            lambda: shells.running
        )
        Gauge("fumarole_hub_clients", "Attached clients", registry=registry).set_function(
            lambda: len(self.clients)
        )
        Gauge(
            "fumarole_hub_scrollback_bytes", "Bytes in all scrollbacks", registry=registry
        ).set_function(lambda: shells.scrollbacks.bytes)

    async def attach(self, request: web.Request) -> web.StreamResponse:
        """Attach a gateway to a terminal, or return the error."""
        try:
            return await self._attach(request)
        except _Refused as refused:
            self._attaches.labels(str(refused.status)).inc()
            return _error_response(refused)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        attach = self._verify(request)
        socket = make_socket()
        if SUBPROTOCOL not in _offered(request) or not socket.can_prepare(request):
            message = f"the request must be a WebSocket upgrade with {SUBPROTOCOL}"
            raise _Refused(400, "bad_upgrade", message)
        try:
            resume = read_resume(request.query)
            name = read_name(request.query["shell"]) if request.query.get("shell") else ""
            own = read_name(request.query["client"]) if "client" in request.query else None
        except ValueError as error:
            raise _Refused(400, "bad_query", str(error)) from None
        found = await self._open(attach, name, resume)
        self._attaches.labels("101").inc()
        await socket.prepare(request)
        if isinstance(found, NoSuchShell):
            # On the WebSocket, since scripts cannot read the response to a refused upgrade.
            await refuse(socket, str(found))
            return socket
        shell, names = found
        client = Attached(
            shell,
            socket,
            mode=attach.mode,
            connection=cast(Connection, request.protocol),
            holder=holder_of(attach),
            resume=resume,
            client=own,
            names=names,
        )
        with self.clients.attached(client):
            await client.serve()
        return socket

    async def _open(
        self, attach: Attach, name: str, resume: Resume | None
    ) -> tuple[Shell, Callable[[], Sequence[str]]] | NoSuchShell:
        """Return the shell and the function that names the session's shells, or the reason."""
        try:
            held = await self._shells.find(attach.sid)
            self._claims.take(attach)
            if self._shells.is_revoked(attach.sid, holder_of(attach)):
                raise _Refused(401, "grant_revoked", "the grant was revoked")
            may_open = attach.mode == "control"
            shell = await self._shells.open(held, name, may_open=may_open, resume=resume)
        except NoSuchShell as error:
            return error
        except NotHeld:
            raise _Refused(404, "not_held", "this hub does not hold the terminal") from None
        except TokenSpent:
            raise _Refused(409, "token_spent", "the token was used before") from None
        except (ExecFailed, StoreUnavailable, TooManyTokens) as error:
            raise _Refused(503, "not_now", str(error) or "too many tokens") from error
        return shell, held.names

    def _verify(self, request: web.Request) -> Attach:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise _Refused(401, "no_token", "an attach token is required")
        try:
            attach = self._claims.verify(token.strip())
        except TokenRefused as error:
            raise _Refused(401, "bad_token", str(error)) from None
        if attach.sid != request.match_info["sid"]:
            raise _Refused(401, "bad_token", "the token is for another terminal")
        return attach


class _Refused(Exception):
    """An attach request that gets an error response instead of the upgrade."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def _error_response(refused: _Refused) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.status == 503:
        headers["Retry-After"] = str(RETRY_SECONDS)
    body = {"code": refused.code, "message": str(refused)}
    return web.json_response(body, status=refused.status, headers=headers)


def _offered(request: web.Request) -> list[str]:
    fields = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    return [name.strip() for name in fields.split(",")]


@dataclass(frozen=True, slots=True)
class HubRole:
    """A running hub: its address, and why it is not ready."""

    address: Address
    shells: HeldShells

    def problems(self) -> Sequence[str]:
        """Return why this hub is not ready; empty if it is."""
        return [f"hub: {self.shells.problem}"] if self.shells.problem else []


@asynccontextmanager
async def serving_hub(
    *,
    store: Store,
    executor: Executor,
    link_keys: Sequence[bytes],
    listen: Address,
    advertise: Address | None,
    registry: CollectorRegistry,
    scrollbacks: Scrollbacks,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[HubRole]:
    """Serve terminals until the context ends; then all shells end and the hub unregisters.

    Args:
        store: The hub registers in it, and finds its terminals there.
        executor: Starts shells in containers.
        link_keys: The keys of attach tokens, each of which verifies.
        listen: The listen address; port 0 is a free port.
        advertise: The address that gateways dial, if it is not *listen*; port 0 is the port of
            *listen*.
        registry: The metrics' registry.
        scrollbacks: Keeps the shells' output.
        clock: Unix seconds.

    Raises:
        ValueError: If it listens on all addresses and *advertise* is not set.
        OSError: If the address cannot be bound.
    """
    handler: AttachHandler | None = None

    async def attach(request: web.Request) -> web.StreamResponse:
        if handler is None:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": str(RETRY_SECONDS)})
        return await handler.attach(request)

    app = web.Application()
    app.add_routes([web.get("/terminals/{sid}", attach)])
    async with listening(app, listen, shutdown_seconds=STOP_SECONDS) as address:
        host, port = dialled(address, advertise)
        hub = Hub(id=secrets.token_hex(8), host=host, port=port)
        shells = HeldShells(
            TerminalSessions(store, hub, clock=clock),
            executor,
            clock=time.monotonic,
            wall=clock,
            scrollbacks=scrollbacks,
        )
        handler = AttachHandler(Claims(link_keys, clock=clock), shells, registry)
        log.info("hub listening", extra={"hub": hub.id, "address": f"{host}:{port}"})
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one.run()) for one in (shells, handler.clients)]
            try:
                yield HubRole(address, shells)
            finally:
                for task in running:
                    task.cancel()


def dialled(taken: Address, advertise: Address | None) -> Address:
    """Return the address that gateways dial for a hub that listens at *taken*.

    Raises:
        ValueError: If that is the unspecified address.
    """
    host, port = advertise or taken
    if is_unspecified(host):
        raise ValueError("FUMAROLE_CONTROLLER_HUB_ADVERTISE must be the address that gateways dial")
    return host, port or taken[1]
