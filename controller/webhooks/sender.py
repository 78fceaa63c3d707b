"""Sends one message to a receiver, within bounds in time, bytes and connections.

Message ids and signatures follow Standard Webhooks (standardwebhooks.com), version 1.0.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from controller.site.webhook_receivers import Receiver
from controller.webhooks.deliveries import AT_ONCE
from shared.connector import Connector
from shared.networks import NOT_THE_WORLD, Bounds
from shared.settings import networks
from shared.text import retry_after
from shared.tls import make_client_tls
from shared.version import VERSION

CONNECT_SECONDS: Final = 5.0
"""For name resolution, TCP and TLS together."""
ATTEMPT_SECONDS: Final = 15.0
DRAIN_SECONDS: Final = 1.0
MOST_DRAINED_BYTES: Final = 64 * 1024
"""How much of a response's unused body is read, so that the connection can be reused."""
IDLE_SECONDS: Final = 3.0
"""Shorter than servers keep idle connections, so that they do not close one that is in use."""
MOST_ADDRESSES: Final = 8
_EVERYWHERE: Final = networks("0.0.0.0/0,::/0")
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"Fumarole/{VERSION}",
}

Outcome = Literal[
    "accepted",
    "refused",
    "redirected",
    "gone",
    "timed_out",
    "broken",
    "unreachable",
    "forbidden",
    "unreadable",
]
"""The result of an attempt. The first four depend on the status. The others are: no response in
time; a connection that broke; one that could not be opened; a forbidden address, which is not
listed; an update that this version cannot show."""

AddressInfo = tuple[Any, ...]
LookUp = Callable[[str, int], Sequence[AddressInfo]]


@dataclass(frozen=True, slots=True)
class Message:
    """The body of a webhook, and its id."""

    id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an attempt; ``retry_after`` is in seconds, 0 without the header.

    ``why`` is the error of an attempt without a response, for the log. It holds no URL.
    """

    outcome: Outcome
    status: int | None = None
    retry_after: float = 0.0
    why: str | None = field(default=None, compare=False)

    @property
    def reached(self) -> bool:
        """Whether the receiver may have seen the message."""
        return self.outcome not in ("unreachable", "forbidden")

    @property
    def is_busy(self) -> bool:
        """Whether the receiver is overloaded (RFC 9110, 15.6.4; RFC 6585, section 4)."""
        return self.status in (429, 503)


class AddressForbidden(OSError):
    """The receiver's name resolves to a forbidden address."""


@dataclass(slots=True, eq=False, repr=False)
class Sender:
    """Sends to one receiver, over its own connections.

    Each address is checked when it is dialled, so that a name server cannot return another one in
    between. Redirects are not followed, and no proxy is used.
    """

    receiver: Receiver
    session: aiohttp.ClientSession
    _: KW_ONLY
    clock: Callable[[], float]

    async def send(self, message: Message) -> Result:
        """Send *message* once."""
        timestamp = int(self.clock())
        signature = sign(
            self.receiver.secrets, message_id=message.id, timestamp=timestamp, body=message.body
        )
        headers = {
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature,
        }
        try:
            async with self.session.post(
                self.receiver.url, data=message.body, headers=headers, allow_redirects=False
            ) as response:
                result = self._judge(response)
                await _drain(response)
                return result
        except aiohttp.ClientConnectorError as error:
            forbidden = isinstance(error.os_error, AddressForbidden)
            return Result("forbidden" if forbidden else "unreachable", why=_reason(error.os_error))
        except aiohttp.ConnectionTimeoutError:
            return Result("unreachable", why=f"no connection within {CONNECT_SECONDS:g} s")
        except TimeoutError:
            return Result("timed_out", why=f"no response within {ATTEMPT_SECONDS:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Result("broken", why=type(error).__name__)

    def _judge(self, response: aiohttp.ClientResponse) -> Result:
        status = response.status
        outcome: Outcome = "refused"
        if 200 <= status < 300:
            outcome = "accepted"
        elif 300 <= status < 400:
            outcome = "redirected"
        elif status == 410:
            outcome = "gone"
        after = retry_after(response.headers.get("Retry-After", ""), now=self.clock()) or 0.0
        return Result(outcome, status, after)


def _reason(error: OSError) -> str:
    """Return why no connection was made, in the words of TLS or of the system."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"no TLS with it: {error.reason}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case _:
            return error.strerror or str(error) or type(error).__name__


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the rest of a short body, or close the connection."""
    read = 0
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for piece in response.content.iter_any():
                read += len(piece)
                if read > MOST_DRAINED_BYTES:
                    break
            else:
                return
    response.close()


@asynccontextmanager
async def opened_sender(
    receiver: Receiver, *, clock: Callable[[], float], look_up: LookUp | None = None
) -> AsyncIterator[Sender]:
    """Open a sender for *receiver*; its connections are closed at the end."""
    allowed = Bounds((*_EVERYWHERE, *receiver.networks), NOT_THE_WORLD)

    def make_socket(info: AddressInfo) -> socket.socket:
        if not allowed.allow(info[4][0]):
            raise AddressForbidden(f"the address {info[4][0]} is not listed")
        return socket.socket(*info[:3])

    connector = Connector(
        ssl=make_client_tls(receiver.authorities),
        resolver=_Resolver(look_up or _look_up),
        use_dns_cache=False,
        limit=AT_ONCE,
        keepalive_timeout=IDLE_SECONDS,
        socket_factory=make_socket,
    )
    timeout = aiohttp.ClientTimeout(
        total=ATTEMPT_SECONDS, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS
    )
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        auto_decompress=False,
    ) as session:
        yield Sender(receiver, session, clock=clock)


def _look_up(host: str, port: int) -> Sequence[AddressInfo]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


class _Resolver(AbstractResolver):
    """Resolves names in a thread of its own, one at a time.

    A silent name server blocks a thread for as long as the C library waits. That must not be one
    of the loop's threads, which others need, nor prevent the process from ending.
    """

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._looking: asyncio.Future[Sequence[AddressInfo]] | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return addresses of the receiver's name."""
        if self._looking is None or self._looking.done():
            self._looking = self._begin(host, port)
        # Shielded: a caller that times out must not cancel it for the others.
        found = await asyncio.shield(self._looking)
        return [
            ResolveResult(
                hostname=host,
                host=info[4][0],
                port=port,
                family=info[0],
                proto=info[2],
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for info in found[:MOST_ADDRESSES]
        ]

    def _begin(self, host: str, port: int) -> asyncio.Future[Sequence[AddressInfo]]:
        loop = asyncio.get_running_loop()
        looking: asyncio.Future[Sequence[AddressInfo]] = loop.create_future()
        # Retrieves the exception, even if no caller waits any more.
        looking.add_done_callback(lambda done: done.cancelled() or done.exception())

        def end(found: Sequence[AddressInfo], error: OSError | None) -> None:
            if looking.done():
                return
            if error is None:
                looking.set_result(found)
            else:
                looking.set_exception(error)

        def work() -> None:
            found: Sequence[AddressInfo] = ()
            failure: OSError | None = None
            try:
                found = self._look_up(host, port)
            except OSError as error:
                failure = error
            except UnicodeError:  # a label that is not valid IDNA
                failure = OSError("not a name")
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(end, found, failure)

        threading.Thread(target=work, name="webhook-name", daemon=True).start()
        return looking

    async def close(self) -> None:
        """Do nothing: the thread ends by itself."""


_SCHEME = "v1"


def make_message_id(kind: str, number: int, *about: object) -> str:
    """Return the id of a message, which is the same for every attempt and sender.

    A store that was restored from a backup assigns numbers again. *about* tells messages with the
    same number apart.
    """
    digest = hashlib.sha256("\0".join(map(str, about)).encode()).hexdigest()
    return f"{kind}_{number}_{digest[:24]}"


def sign(secrets: Sequence[bytes], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the field ``webhook-signature``: one signature for each of the secrets."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(secret, signed, "sha256") for secret in secrets)
    return " ".join(f"{_SCHEME},{base64.b64encode(digest).decode()}" for digest in digests)
