"""Connections to apps, limited to the networks in which targets may be."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection

from gateway.relay.ending.closer import SHUTDOWN_SECONDS
from gateway.relay.tls_records import connect_tls
from shared.networks import Bounds, Network
from shared.routes.route import Target
from shared.tls import make_client_tls

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
ATTEMPT_SECONDS: Final = 0.25
"""From one address' attempt to the next one's, unless it fails earlier (RFC 8305, section 5)."""
MAX_ADDRESSES: Final = 8
"""Of one name: a name server must not decide how many sockets a dial costs."""

_SECURED: Final = ("https", "wss")
_LITERALS: Final = 4096
"""Literal addresses whose form and permission are cached."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


class DialFailed(Exception):
    """The dial failed; ``code`` names the refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def to_dial_failed(error: BaseException) -> DialFailed:
    """Return the refusal that *error* of a dial means for its request."""
    match error:
        case DialFailed():
            return error
        case TimeoutError():
            return DialFailed("app_timeout")
        case OSError(errno=number) if number in OUT_OF_DESCRIPTORS:
            return DialFailed("gateway_full")
        case _:  # OSError; ValueError for an invalid host name, such as one with an empty label
            return DialFailed("app_unreachable")


class Dialler:
    """Connects to targets inside the allowed networks.

    A name is resolved once, and exactly the addresses that were checked are dialled, so a name
    server cannot give a different answer in between. Dials of one name share a look-up that is
    under way: each occupies one of libuv's few threads until the system's resolver gives up, which
    takes longer than the deadline of a dial. Several addresses are raced as in RFC 8305,
    alternating the families. An address that drops packets then costs a quarter of a second and not
    the whole deadline.

    Args:
        networks: Where targets may be. An address that embeds an IPv4 one (mapped, NAT64, 6to4,
            Teredo) must be allowed by that one too.
        refused: Where no target may be, even within an allowed network.
        loop: The loop of the connections.
        dial_seconds: The deadline for resolving and connecting together.
        trust: How ``https`` and ``wss`` targets are verified: see :func:`make_upstream_tls`.
    """

    def __init__(
        self,
        *,
        networks: Sequence[Network],
        refused: Sequence[Network] = (),
        loop: asyncio.AbstractEventLoop,
        dial_seconds: float = 5.0,
        trust: ssl.SSLContext,
    ) -> None:
        self._loop = loop
        self.dial_seconds = dial_seconds
        self._trust = trust
        self._lookups: dict[str, asyncio.Task[list[str]]] = {}
        # Most targets are pods, which are dialled again and again.
        self._allowed = lru_cache(_LITERALS)(Bounds(networks, refused).allow)

    async def dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Return a connection to *target*.

        Raises:
            DialFailed: ``target_forbidden``, ``app_unreachable`` or ``app_timeout``.
        """
        try:
            async with asyncio.timeout(self.dial_seconds):
                return await self.connect(target, factory)
        except (OSError, ValueError) as error:
            raise to_dial_failed(error) from error

    def connect(
        self, target: Target, factory: Callable[[], P]
    ) -> Coroutine[Any, Any, tuple[asyncio.Transport, P]]:
        """Return a coroutine that connects to *target*, for callers with their own deadline.

        For a literal address, the usual case, it is the loop's own coroutine without a wrapper. Its
        errors are to be passed to :func:`to_dial_failed`.

        Raises:
            DialFailed: ``target_forbidden``.
        """
        literal = _read_literal(target.host)
        if literal is None:
            return self._dial(target, factory)
        if not self._allowed(literal):
            raise DialFailed("target_forbidden")
        if target.scheme in _SECURED:
            return self._connect(target, factory, host=literal, port=target.port)
        return self._loop.create_connection(factory, literal, target.port)

    async def _dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        addresses = await self._addresses(target)
        if len(addresses) == 1:
            return await self._connect(target, factory, host=addresses[0], port=target.port)
        sock = await self._race(addresses[:MAX_ADDRESSES], target.port)
        try:
            return await self._connect(target, factory, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def _race(self, addresses: Sequence[str], port: int) -> socket.socket:
        """Return a socket connected to the first of *addresses* that accepts."""
        exhausted: list[OSError] = []

        def make(info: AddrInfoType) -> socket.socket:
            try:
                return socket.socket(*info[:3])
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    exhausted.append(error)
                raise

        infos = [_address_info(address, port) for address in addresses]
        try:
            return await start_connection(
                infos,
                happy_eyeballs_delay=ATTEMPT_SECONDS,
                interleave=1,
                loop=self._loop,
                socket_factory=make,
            )
        except OSError as error:
            raise (exhausted or [error])[0] from error

    def _connect(
        self, target: Target, factory: Callable[[], P], **where: Any
    ) -> Coroutine[Any, Any, tuple[asyncio.Transport, P]]:
        if target.scheme not in _SECURED:
            return self._loop.create_connection(factory, **where)
        return connect_tls(
            factory(),
            self._trust,
            lambda records: self._loop.create_connection(records, **where),
            # A name is also sent as SNI; an address has to be in the certificate.
            server_hostname=target.host,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    async def _addresses(self, target: Target) -> list[str]:
        host = target.host
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = self._loop.create_task(self._resolve(host), name=host)
            self._lookups[host] = lookup
            lookup.add_done_callback(self._looked_up)
        await asyncio.wait((lookup,))  # a dial that is cancelled leaves it to the others
        allowed = list(filter(self._allowed, lookup.result()))
        if not allowed:
            raise DialFailed("target_forbidden")
        return allowed

    def _looked_up(self, lookup: asyncio.Task[list[str]]) -> None:
        del self._lookups[lookup.get_name()]
        if not lookup.cancelled():
            lookup.exception()  # no dial may be left to take it

    async def _resolve(self, host: str) -> list[str]:
        found = await self._loop.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        return list(dict.fromkeys(str(info[4][0]) for info in found))


@lru_cache(_LITERALS)
def _read_literal(host: str) -> str | None:
    """Return the canonical form of the address *host*; None for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def _address_info(address: str, port: int) -> AddrInfoType:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


def make_upstream_tls(authorities: Path | None) -> ssl.SSLContext:
    """Return the TLS context that verifies apps' certificates.

    Only these *authorities* are trusted, or the system's if None.

    Raises:
        OSError: If the file holds no certificate.
    """
    context = make_client_tls(authorities)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
