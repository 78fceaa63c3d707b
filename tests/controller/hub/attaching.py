"""Provides a serving hub, and clients that attach to it as gateways do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import WSMsgType
from prometheus_client import CollectorRegistry

from controller.hub.protocol import SUBPROTOCOL
from controller.hub.scrollback import Scrollbacks
from controller.hub.server import HubRole, serving_hub
from controller.kube.exec import Executor
from controller.store.database import Store
from controller.store.instance import read_heartbeats
from controller.store.sessions.session_rows import assign_shell
from shared.link import AttachGrant, AttachTokens
from shared.tokens import Mode
from tests.clock import Clock

LINK_KEY = bytes(range(32))
SID = "a" * 26
# Deadline for a busy machine; a successful wait is much shorter.
PATIENCE_SECONDS = 60


@dataclass
class Hub:
    """A serving hub, with the helpers that a gateway needs to attach."""

    role: HubRole
    store: Store
    clock: Clock
    http: aiohttp.ClientSession
    registry: CollectorRegistry
    exits: AsyncExitStack
    jtis: int = field(default=0)

    def token(
        self,
        *,
        sid: str = SID,
        mode: Mode = "control",
        jti: str = "",
        sub: str = "ada",
        grant: AttachGrant | None = None,
    ) -> str:
        self.jtis += 1
        tokens = AttachTokens(LINK_KEY)
        jti = jti or str(self.jtis)
        return tokens.make(sid=sid, sub=sub, mode=mode, jti=jti, now=self.clock(), grant=grant)

    def url(self, sid: str = SID) -> str:
        host, port = self.role.address
        return f"http://{host}:{port}/terminals/{sid}"

    async def attach(
        self, *, mode: Mode = "control", token: str = "", **query: str | int
    ) -> Client:
        """Attach to the terminal as a gateway does."""
        headers = {"Authorization": f"Bearer {token or self.token(mode=mode)}"}
        socket = await self.http.ws_connect(
            self.url(), headers=headers, protocols=(SUBPROTOCOL,), params=query
        )
        self.exits.push_async_callback(socket.close)
        assert socket.protocol == SUBPROTOCOL
        return Client(socket)

    async def refused(self, headers: dict[str, str], sid: str = SID) -> aiohttp.ClientResponse:
        """Request the upgrade with *headers*, and return the response that refuses it."""
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": SUBPROTOCOL,
        }  # fmt: skip
        response = await self.http.get(self.url(sid), headers=upgrade | headers)
        assert response.status != 101
        return response


class Client:
    """An attached client that parses messages as the page does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.socket = socket
        self.output = bytearray()
        self.texts: list[dict[str, Any]] = []
        self.code: int | None = None

    async def next(self) -> bool:
        """Receive one message; return False once the hub has closed."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self.socket.receive()
        if message.type is WSMsgType.TEXT:
            self.texts.append(json.loads(message.data))
        elif message.type is WSMsgType.BINARY:
            self.output += message.data
        else:
            # Take the received code: aiohttp reports 1006 if its own Close finds the peer gone.
            received = message.type is WSMsgType.CLOSE
            self.code = message.data if received else self.socket.close_code
            return False
        return True

    async def see(self, wanted: bytes) -> None:
        searched = 0
        while self.output.find(wanted, searched) < 0:
            searched = max(0, len(self.output) - len(wanted))
            assert await self.next(), (self.output[-1000:], self.code)

    async def hear(self, kind: str) -> dict[str, Any]:
        while not self.said(kind):
            assert await self.next(), self.texts
        return self.said(kind)[-1]

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [text for text in self.texts if text["type"] == kind]

    async def until_closed(self) -> int | None:
        while await self.next():
            pass
        return self.code


@asynccontextmanager
async def hub_serving(
    store: Store, clock: Clock, executor: Executor, scrollbacks: Scrollbacks | None = None
) -> AsyncIterator[Hub]:
    registry = CollectorRegistry()
    async with (
        serving_hub(
            store=store, executor=executor, link_keys=[LINK_KEY], listen=("127.0.0.1", 0),
            advertise=None, registry=registry, clock=clock,
            scrollbacks=scrollbacks or Scrollbacks(),
        ) as role,
        aiohttp.ClientSession() as http,
        AsyncExitStack() as exits,
    ):  # fmt: skip
        hub = Hub(role, store, clock, http, registry, exits)
        await registered(hub)
        yield hub


async def registered(hub: Hub) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while hub.role.problems():
            await asyncio.sleep(0.005)


async def assign(hub: Hub, *, pod_uid: str = "u1", hub_id: str | None = None) -> None:
    async with hub.store.write() as transaction:
        ids = [one.hub.id for one in await read_heartbeats(transaction)]
        await assign_shell(
            transaction, SID, hub_id=hub_id or ids[0], pod="j-j1-job-0", pod_uid=pod_uid
        )
