"""A session behind the gateway, opened and used as its page in a browser would do it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from deploy.local.smoke.failure import SmokeFailed

LOOK_SECONDS: Final = 0.05
# The session may be published a moment after the orchestrator got it, and the gateway may have
# started a moment ago.
_NOT_YET: Final = frozenset({404, 503})


class LocalNames(AbstractResolver):
    """Resolves ``localhost`` and names below it to this machine, as browsers do (RFC 6761)."""

    def __init__(self) -> None:
        self._others = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of *host*."""
        if host != "localhost" and not host.endswith(".localhost"):
            return await self._others.resolve(host, port, family)
        local = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [local]

    async def close(self) -> None:
        """Do nothing: resolving holds no resources."""
        await self._others.close()


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP client with a cookie jar of its own."""
    connector = aiohttp.TCPConnector(resolver=LocalNames())
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
        yield http


@dataclass(frozen=True, slots=True)
class Link:
    """The parts of an address that opens a session. Its ``repr`` does not show the token."""

    origin: str
    path: str
    token: str
    next: str

    @classmethod
    def read(cls, url: str) -> Link:
        """Return the parts of *url*.

        Raises:
            SmokeFailed: If the token is not in the fragment, which no server sees.
        """
        parts = urlsplit(url)
        fragment = parse_qs(parts.fragment)
        if parts.query or "token" not in fragment:
            raise SmokeFailed("the link does not hold its token in the fragment")
        (token,), (following,) = fragment["token"], fragment.get("next", ["/"])
        return cls(f"{parts.scheme}://{parts.netloc}", parts.path, token, following)

    def __repr__(self) -> str:
        return f"Link({self.origin}{self.path}, next={self.next!r})"


class Opened:
    """An open session. Its requests carry the session's cookie and its own origin.

    Args:
        http: A client that holds the cookie.
        origin: The session's origin.
        start: The path in the app at which a browser begins.
    """

    def __init__(self, http: aiohttp.ClientSession, origin: str, start: str) -> None:
        self._http = http
        self._origin = origin
        self.start = start

    def cookie(self, name: str) -> str:
        """Return one of the app's cookies, or "" if it is not set."""
        for cookie in self._http.cookie_jar:
            if cookie.key == name:
                return cookie.value
        return ""

    async def get(self, path: str) -> aiohttp.ClientResponse:
        """Request *path*; return when the head of the response has arrived."""
        return await self._http.get(self._origin + path)

    async def post(self, path: str, body: Any, **headers: str) -> dict[str, Any]:
        """Send *body*, and return the body of the response.

        Raises:
            SmokeFailed: If the request is refused.
        """
        headers = {"Origin": self._origin} | headers
        async with self._http.post(self._origin + path, json=body, headers=headers) as response:
            if response.status >= 400:
                raise SmokeFailed(f"POST {path} was answered {response.status}")
            content: dict[str, Any] = await response.json()
            return content

    @asynccontextmanager
    async def websocket(
        self, path: str, *protocols: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse[bool]]:
        """Yield a WebSocket to *path*."""
        async with self._http.ws_connect(
            self._origin + path,
            protocols=protocols,
            headers={"Origin": self._origin},
            max_msg_size=0,
        ) as connected:
            if protocols and connected.protocol not in protocols:
                raise SmokeFailed(f"the WebSocket speaks {connected.protocol}")
            yield connected

    async def until_ready(self) -> None:
        """Return when the gateway reports the session as ready, as the starting page does."""
        while True:
            async with await self.get("/.fumarole/state") as response:
                if response.status == 200 and (await response.json())["state"] == "ready":
                    return
                if response.status not in (200, *_NOT_YET):
                    raise SmokeFailed(f"the session's state was answered {response.status}")
            await asyncio.sleep(LOOK_SECONDS)


async def code_of(response: aiohttp.ClientResponse) -> str:
    """Return the code of a refusal by the gateway, in brackets; "" for any other response."""
    try:
        content = json.loads(await response.read())
        return f" ({content['code']}: {content['message']})"
    except (ValueError, KeyError, TypeError):
        return ""


async def open_link(http: aiohttp.ClientSession, url: str) -> Opened | None:
    """Open the session of a link; return None if the gateway does not know it yet.

    Raises:
        SmokeFailed: If the gateway refuses.
    """
    link = Link.read(url)
    form = {"token": link.token, "next": link.next}
    async with http.post(link.origin + link.path, data=form, allow_redirects=False) as response:
        if response.status in _NOT_YET:
            return None
        if response.status != 303:
            raise SmokeFailed(f"opening was answered {response.status}")
        return Opened(http, link.origin, response.headers["Location"])
