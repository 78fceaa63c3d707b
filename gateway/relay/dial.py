"""Connections to apps, only where targets may be."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar

from gateway.core.addresses import is_within

if TYPE_CHECKING:
    from gateway.core.site import Network
    from shared.routes import Target

P = TypeVar("P", bound=asyncio.BaseProtocol)


class DialFailed(Exception):
    """No connection came about; ``code`` names the refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Dialler:
    """Connects to targets inside the allowed networks.

    A name is looked up once, and the very address that was checked is dialled, so that a name
    server cannot give another answer in between.

    Args:
        networks: Where targets may be; addresses that embed an IPv4 one (mapped, NAT64, 6to4)
            are judged by that one as well.
        loop: Where connections live.
        dial_seconds: For look-up and connecting together.
        trust: How ``https`` and ``wss`` targets are verified; None for the system's authorities.
    """

    def __init__(
        self,
        *,
        networks: Sequence[Network],
        loop: asyncio.AbstractEventLoop,
        dial_seconds: float = 5.0,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._networks = tuple(networks)
        self._loop = loop
        self._dial_seconds = dial_seconds
        self._trust = trust

    async def dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Return a connection to *target*.

        Raises:
            DialFailed: ``target_forbidden``, ``app_unreachable`` or ``app_timeout``.
        """
        try:
            async with asyncio.timeout(self._dial_seconds):
                return await self._dial(target, factory)
        except TimeoutError as error:
            raise DialFailed("app_timeout") from error
        except OSError as error:
            raise DialFailed("app_unreachable") from error

    async def _dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        address = await self._address(target)
        tls = target.scheme in ("https", "wss")
        transport, protocol = await self._loop.create_connection(
            factory,
            address,
            target.port,
            ssl=self._tls() if tls else None,
            server_hostname=target.host if tls else None,
        )
        return transport, protocol

    def _tls(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = ssl.create_default_context()
            self._trust.set_alpn_protocols(["http/1.1"])
        return self._trust

    async def _address(self, target: Target) -> str:
        try:
            candidates = [str(ip_address(target.host))]
        except ValueError:
            found = await self._loop.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            candidates = [str(info[4][0]) for info in found]
        for candidate in candidates:
            if is_within(candidate, self._networks):
                return candidate
        raise DialFailed("target_forbidden")
