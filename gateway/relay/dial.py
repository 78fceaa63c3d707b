"""Connections to apps, only where targets may be."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gateway.relay.ending.closing import SHUTDOWN_SECONDS
from shared.networks import Bounds

if TYPE_CHECKING:
    from shared.networks import Network
    from shared.routes import Target

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})

P = TypeVar("P", bound=asyncio.BaseProtocol)


class DialFailed(Exception):
    """No connection came about; ``code`` names the refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Dialler:
    """Connects to targets inside the allowed networks.

    A name is looked up once, and the very addresses that were checked are dialled, one after the
    other, so that a name server cannot give another answer in between.

    Args:
        networks: Where targets may be; addresses that embed an IPv4 one (mapped, NAT64, 6to4,
            Teredo) are judged by that one as well.
        refused: Where none is, whatever wider network is allowed.
        loop: Where connections live.
        dial_seconds: For look-up and connecting together.
        trust: How ``https`` and ``wss`` targets are verified, see :func:`make_trust`; None for
            the system's authorities.
    """

    def __init__(
        self,
        *,
        networks: Sequence[Network],
        refused: Sequence[Network] = (),
        loop: asyncio.AbstractEventLoop,
        dial_seconds: float = 5.0,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._bounds = Bounds(networks, refused)
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
            exhausted = error.errno in OUT_OF_DESCRIPTORS
            raise DialFailed("gateway_full" if exhausted else "app_unreachable") from error

    async def _dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        addresses = await self._addresses(target)
        for address in addresses[:-1]:
            try:
                return await self._connect(address, target, factory)
            except OSError as error:
                # A name may have addresses of both families, one of them unreachable.
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
        return await self._connect(addresses[-1], target, factory)

    async def _connect(
        self, address: str, target: Target, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        tls = target.scheme in ("https", "wss")
        transport, protocol = await self._loop.create_connection(
            factory,
            address,
            target.port,
            ssl=self._tls() if tls else None,
            # Where it is a name it is asked for (SNI) too; an address has to be in the certificate.
            server_hostname=target.host if tls else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls else None,
        )
        return transport, protocol

    def _tls(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = make_trust(None)
        return self._trust

    async def _addresses(self, target: Target) -> list[str]:
        try:
            candidates = [str(ip_address(target.host))]
        except ValueError:
            found = await self._loop.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            candidates = list(dict.fromkeys(str(info[4][0]) for info in found))
        allowed = [candidate for candidate in candidates if self._bounds.allow(candidate)]
        if not allowed:
            raise DialFailed("target_forbidden")
        return allowed


def make_trust(authorities: Path | None) -> ssl.SSLContext:
    """Return the context in which apps' certificates are verified.

    Against these *authorities* alone; against the system's where none are given.

    Raises:
        OSError: If the file holds no certificate.
    """
    context = ssl.create_default_context(cafile=authorities)
    context.set_alpn_protocols(["http/1.1"])
    return context
