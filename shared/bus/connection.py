"""From ``FUMAROLE_REDIS_URL`` to a client: one Redis, Sentinels, or a Redis Cluster.

All of them end in an ordinary client of one server: all our keys are in one slot, so a cluster is
to us a server that moves. Where it went is learnt from its own MOVED, not from ``CLUSTER``
commands, which the gateways' user need not be allowed.

A connection by TLS trusts the authorities in the file that the URL names and no others, or the
system's where it names none. The files are read with every connection, so that certificates can be
renewed under a process that runs for months. Names and addresses are always compared.

What redis raises becomes BusUnavailable, with a reason for people and without what was sent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, assert_never

from redis.asyncio import (
    Connection,
    ConnectionPool,
    Redis,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.bus.keys import CALL_SECONDS
from shared.bus.urls import Node, RedisAddress, parse_url
from shared.errors import BusUnavailable

_ENDED = "Connection closed by server."
"""What redis says, of all that it calls a ConnectionError, where there was a connection."""
_NOT_SAVED: Final = "MISCONF"
"""In what a Redis says that could not save its data, and has stop-writes-on-bgsave-error."""
_WORDS: Final[Mapping[type, str]] = MappingProxyType(
    {
        AuthenticationError: "it does not take this user with this password",
        NoPermissionError: "this user may not do this there",
        OutOfMemoryError: "it is out of memory",
        ReadOnlyError: "it is a replica, and takes no writes",
        BusyLoadingError: "it is still loading its data",
    }
)
_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What redis raises where an answer is not in its protocol, or not one to what was asked."""


class NotServed(RedisConnectionError):
    """A connection that was given up, for a reason that is in our words: for people as it is."""


class translated:  # noqa: N801  # reads as a statement
    """Turns what redis raises into BusUnavailable, without what was sent.

    And lets no cancellation be lost: redis sends with ``asyncio.wait_for``, which before Python
    3.12 returns as if nothing had happened when it is cancelled just as it is done.
    """

    def __enter__(self) -> None:
        self._cancelling = _cancel_requests()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if _cancel_requests() > self._cancelling and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        if isinstance(error, (RedisError, OSError, TimeoutError, *_NONSENSE)):
            raise BusUnavailable(f"Redis did not answer: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return why there was no answer; nothing of what was sent, which may be a password."""
    for one in _with_causes(error):
        match one:
            case NotServed():
                return str(one)
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {one.verify_message}"
            case ssl.SSLError():
                return f"no TLS with it: {one.reason}"
            case RedisError() if type(one) in _WORDS:
                return _WORDS[type(one)]
            case ResponseError() if _NOT_SAVED in str(one):
                return "it takes no writes, as it cannot save to its disk"
            case ConnectionAbortedError() if one.strerror is None:
                # asyncio's, and the only one without a number.
                return "no TLS with it: nobody answered the handshake"
            case OSError() if one.strerror:
                return one.strerror
            case RedisConnectionError() if str(one) == _ENDED:
                return "it ended the connection"
            case _:
                pass
    return type(error).__name__


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


# By TLS

HANDSHAKE_SECONDS: Final = 4.0
"""Less than for a call: so that a port where nobody answers TLS is told from one that is slow.
Redis without TLS takes what begins a handshake for an empty line, and waits for more."""


class _Trust:
    """Stands where redis keeps one context for the life of a connection object."""

    def __init__(
        self,
        ssl_ca_certs: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self._authorities = ssl_ca_certs
        self._certificate = ssl_certfile
        self._key = ssl_keyfile

    def get(self) -> ssl.SSLContext:
        """Return what the next connection is secured with."""
        context = ssl.create_default_context(cafile=self._authorities)
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key)
        return context


class _Trusting:
    def __init__(self, *, trust: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context: Any = _Trust(**trust)

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = super()._connection_arguments()  # type: ignore[misc]  # of redis' connection
        return arguments | {"ssl_handshake_timeout": HANDSHAKE_SECONDS}


class TlsConnection(_Trusting, SSLConnection):
    """A connection by TLS."""


class SentinelTlsConnection(_Trusting, SentinelManagedSSLConnection):
    """A connection by TLS to the master that Sentinels name."""


# By Sentinels, which say who the master is; and why none of them did


class SentinelRedis(Redis):
    """A client of the master; closes what it asked the Sentinels with, too."""

    sentinels: Sentinels | None = None

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        if self.sentinels is not None:
            await self.sentinels.aclose()


class Sentinels(Sentinel):
    """Asks one after another for the master, first whoever knew it last.

    redis' own makes one text of what each of them answered, from which no reason can be told, and
    asks no other where one refuses.
    """

    def __init__(self, clients: list[Redis]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]  # redis leaves it untyped
        self.sentinels = clients

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the master's host and port.

        Raises:
            NotServed: If no Sentinel names one that is up, with what each of them answered.
        """
        reasons: list[str] = []
        for sentinel in tuple(self.sentinels):
            try:
                masters: Any = await sentinel.sentinel_masters()
            except (RedisError, OSError) as error:
                reasons.append(reason_of(error))
                continue
            state = masters.get(service_name)
            if state is None:
                reasons.append("it knows no such name")
            elif not self.check_master_state(state, service_name):
                reasons.append("the one that it knows is down")
            else:
                self.sentinels.remove(sentinel)
                self.sentinels.insert(0, sentinel)
                return str(state["ip"]), int(state["port"])
        raise NotServed(f"no Sentinel names a master: {', '.join(dict.fromkeys(reasons))}")


def connect(url: str) -> Redis:
    """Return a client of the Redis at *url*; nothing is sent yet.

    RESP2, since RESP3 begins with HELLO, which the gateways' Redis user need not be allowed. A
    call whose connection turns out to be dead is made once more at once, not later: whoever
    calls knows better when to try again.
    """
    place = parse_url(url)
    match place.kind:
        case "unix":
            return _client(UnixDomainSocketConnection, **_settings(), **place.options)
        case "one":
            return _client_of(place, place.nodes[0], place.options)
        case "sentinel":
            return _sentinels_master(place)
        case "cluster":
            kind, trust = _by_tls(place, _SlotConnection, _SlotTlsConnection)
            settings = _settings(attempts=len(place.nodes) + 1)
            pool: ConnectionPool = ConnectionPool(
                connection_class=kind, slot=_Slot(place.nodes), **settings, **trust, **place.options
            )
            return _SlotRedis.from_pool(pool)
        case _:
            assert_never(place.kind)


def is_sharded(redis: Redis) -> bool:
    """Say whether channels are in slots, too: then SPUBLISH and SSUBSCRIBE are to be used."""
    return isinstance(redis, _SlotRedis)


async def check_master(redis: Redis) -> None:
    """Have connections that are not in use dropped, if the Sentinels name another master by now.

    A master that was cut off from them answers as if nothing had happened.
    """
    if isinstance(redis, SentinelRedis):
        pool = redis.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            await pool.get_master_address()  # type: ignore[no-untyped-call]  # redis leaves it so


def named_master(redis: Redis) -> tuple[str, int] | None:
    """Return which master the Sentinels have named last to *redis*; None before, or without."""
    pool = redis.connection_pool
    return pool.master_address if isinstance(pool, SentinelConnectionPool) else None


def _settings(*, attempts: int = 1) -> dict[str, Any]:
    again = Retry(NoBackoff(), attempts, supported_errors=(RedisConnectionError,))
    return {
        "socket_timeout": CALL_SECONDS,
        "socket_connect_timeout": CALL_SECONDS,
        "protocol": 2,
        "retry": again,
        # CLIENT SETINFO is not among the commands that a gateway's user is allowed.
        "driver_info": None,
    }


def _by_tls(place: RedisAddress, plain: type, secured: type) -> tuple[type, dict[str, Any]]:
    """Return which kind of connection, and what it is made with besides."""
    return (plain, {}) if place.trust is None else (secured, {"trust": place.trust})


def _client(kind: type, **options: Any) -> Redis:
    return Redis.from_pool(ConnectionPool(connection_class=kind, **options))


def _client_of(place: RedisAddress, node: Node, options: dict[str, Any]) -> Redis:
    kind, trust = _by_tls(place, Connection, TlsConnection)
    host, port = node
    return _client(kind, host=host, port=port, **_settings(), **trust, **options)


def _sentinels_master(place: RedisAddress) -> Redis:
    sentinels = Sentinels([_client_of(place, one, place.sentinel_options) for one in place.nodes])
    kind, trust = _by_tls(place, SentinelManagedConnection, SentinelTlsConnection)
    client: SentinelRedis = sentinels.master_for(
        place.service,
        redis_class=SentinelRedis,
        connection_class=kind,
        **_settings(),
        **trust,
        **place.options,
    )
    client.sentinels = sentinels
    return client


class _SlotRedis(Redis):
    """A client of whichever node of a cluster serves our slot."""


class _Slot:
    """Where our slot is, as far as is known; shared by the connections of one client."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self._seeds = seeds
        self._next = 0
        self._moved_to: Node | None = None
        self._troubles: dict[Node, str] = {}

    def node(self) -> Node:
        """Return the node to connect to."""
        return self._moved_to or self._seeds[self._next % len(self._seeds)]

    def moved(self, node: Node) -> str:
        """Take the slot to be at *node*; return why this is no answer."""
        self._moved_to = node
        trouble = self._troubles.get(node)
        if trouble is not None:
            return f"the slot is at a node that cannot be asked: {trouble}"
        return "the slot is elsewhere"

    def connected(self, node: Node) -> None:
        """Forget why *node* could not be asked."""
        self._troubles.pop(node, None)

    def failed(self, node: Node, why: str) -> None:
        """Ask the next one, if *node* was the one to connect to."""
        self._troubles[node] = why
        if node == self.node():
            self._moved_to = None
            self._next += 1


class _FollowsSlot:
    """Connects to where the slot is, and is broken by an answer that says that it moved."""

    host: str
    port: int

    def __init__(self, *, slot: _Slot, **options: Any) -> None:
        self._slot = slot
        super().__init__(**options)

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        if not self.is_connected:  # type: ignore[attr-defined]  # of redis' connection
            self.host, self.port = node = self._slot.node()
            try:
                await super().connect_check_health(*args, **options)  # type: ignore[misc]  # as above
            except (RedisError, OSError) as error:
                self._slot.failed(node, reason_of(error))
                raise
            self._slot.connected(node)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]  # as above
        except MovedError as error:
            await self._break(self._slot.moved((error.host or self.host, error.port)))
        except (AskError, ClusterDownError):
            why = "the slot is not served here"
            self._slot.failed((self.host, self.port), why)
            await self._break(why)

    async def _break(self, why: str) -> None:
        # What it was asked is asked again, elsewhere: nothing of it was done here.
        await self.disconnect(nowait=True)  # type: ignore[attr-defined]  # of redis' connection
        raise NotServed(why)


class _SlotConnection(_FollowsSlot, Connection):
    pass


class _SlotTlsConnection(_FollowsSlot, TlsConnection):
    pass
