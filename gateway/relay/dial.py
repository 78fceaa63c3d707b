"""Connections to apps, only where targets may be."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection

from gateway.relay.ending.ends import SHUTDOWN_SECONDS
from gateway.relay.tls_records import secure
from shared.networks import Bounds

if TYPE_CHECKING:
    from shared.networks import Network
    from shared.routes.route import Target

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
ATTEMPT_SECONDS: Final = 0.25
"""From one address' attempt to the next one's, unless it failed before (RFC 8305, section 5)."""
MOST_ADDRESSES: Final = 8
"""Of one name: whoever answers for it does not decide how many sockets a dial costs."""

_SECURED: Final = ("https", "wss")
_LITERALS: Final = 4096
"""Addresses of which it is remembered what they are, and whether they may be dialled."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


class DialFailed(Exception):
    """No connection came about; ``code`` names the refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def failed_by(error: BaseException) -> DialFailed:
    """Return what *error* of a dial means for the request that it was for."""
    match error:
        case DialFailed():
            return error
        case TimeoutError():
            return DialFailed("app_timeout")
        case OSError(errno=number) if number in OUT_OF_DESCRIPTORS:
            return DialFailed("gateway_full")
        case _:  # OSError; ValueError for a host that is no name: an empty label, say
            return DialFailed("app_unreachable")


class Dialler:
    """Connects to targets inside the allowed networks.

    A name is looked up once, and the very addresses that were checked are dialled, so that a name
    server cannot give another answer in between. Several addresses are raced as RFC 8305 says, the
    families in turns: one that drops what it is sent costs a quarter of a second, not the deadline.

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
        self._loop = loop
        self.dial_seconds = dial_seconds
        self._trust = trust
        # Most targets are pods, each dialled again and again.
        self._allowed = lru_cache(_LITERALS)(Bounds(networks, refused).allow)

    async def dial(self, target: Target, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Return a connection to *target*.

        Raises:
            DialFailed: ``target_forbidden``, ``app_unreachable`` or ``app_timeout``.
        """
        try:
            async with asyncio.timeout(self.dial_seconds):
                return await self.begin(target, factory)
        except (OSError, ValueError) as error:
            raise failed_by(error) from error

    def begin(
        self, target: Target, factory: Callable[[], P]
    ) -> Coroutine[Any, Any, tuple[asyncio.Transport, P]]:
        """Return what connects to *target* when it is run, for those that have a deadline.

        To an address, which most targets have, that is the loop's own coroutine, and nothing
        around it. Its errors are for :func:`failed_by`.

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
        sock = await self._race(addresses[:MOST_ADDRESSES], target.port)
        try:
            return await self._connect(target, factory, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def _race(self, addresses: Sequence[str], port: int) -> socket.socket:
        """Return a socket that is connected to the first of *addresses* that answers."""
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
        return secure(
            factory(),
            self._tls(),
            lambda records: self._loop.create_connection(records, **where),
            # Where it is a name it is asked for (SNI) too; an address has to be in the certificate.
            server_hostname=target.host,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    def _tls(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = make_trust(None)
        return self._trust

    async def _addresses(self, target: Target) -> list[str]:
        found = await self._loop.getaddrinfo(
            target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        candidates = list(dict.fromkeys(str(info[4][0]) for info in found))
        allowed = [candidate for candidate in candidates if self._allowed(candidate)]
        if not allowed:
            raise DialFailed("target_forbidden")
        return allowed


@lru_cache(_LITERALS)
def _read_literal(host: str) -> str | None:
    """Return the address that *host* is, in its usual form; None for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def _address_info(address: str, port: int) -> AddrInfoType:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


def make_trust(authorities: Path | None) -> ssl.SSLContext:
    """Return the context in which apps' certificates are verified.

    Against these *authorities* alone; against the system's where none are given.

    Raises:
        OSError: If the file holds no certificate.
    """
    context = ssl.create_default_context(cafile=authorities)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
