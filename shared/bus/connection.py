"""Makes a client from ``FUMAROLE_REDIS_URL``: of one Redis, of Sentinels, or of a Redis Cluster.

The result is always an ordinary client of one server. All keys of an installation are in one slot,
so a cluster is used as one server that moves. The client follows MOVED responses and needs no
``CLUSTER`` commands, so that the gateways' user need not be allowed to use them.

A TLS connection trusts only the authorities in the file that the URL names, or the system's if it
names none. The files are read with every connection, so that certificates can be renewed while the
process runs. Host names are always verified.

Exceptions of redis-py become BusUnavailable, with a reason for people and without the command.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.bus.keys import CALL_SECONDS
from shared.bus.urls import Node, RedisAddress, parse_url
from shared.errors import BusUnavailable
from shared.tls import make_client_tls

_ENDED = "Connection closed by server."
"""redis-py's message if the server closed an open connection."""
_NOT_SAVED: Final = "MISCONF"
"""The error code of a Redis that cannot save its data, with stop-writes-on-bgsave-error."""
_WORDS: Final[Mapping[type, str]] = {
    AuthenticationError: "it does not take this user with this password",
    NoPermissionError: "this user may not do this there",
    OutOfMemoryError: "it is out of memory",
    ReadOnlyError: "it is a replica, and takes no writes",
    BusyLoadingError: "it is still loading its data",
}
_OTHERWISE: Final[Mapping[type, str]] = {
    RedisTimeoutError: "it does not respond in time",
    TimeoutError: "it does not respond in time",
}
"""Used if no cause says more."""
_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Raised by redis-py for a response that is malformed or does not fit the command."""


class NotServed(RedisConnectionError):
    """A connection was given up; the message is the reason for people."""


class SlotMigrating(NotServed):
    """The slot's keys are on their way to another node; no node has executed the command."""


class translated:  # noqa: N801  # reads as a statement
    """Translates exceptions of redis-py to BusUnavailable, without the command.

    Also restores lost cancellations: redis-py sends with ``asyncio.wait_for``, which before Python
    3.12 swallows a cancellation that arrives just as the call completes.
    """

    def __enter__(self) -> None:
        self._cancelling = _cancel_requests()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if _cancel_requests() > self._cancelling and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error
        if isinstance(error, (RedisError, OSError, TimeoutError, *_NONSENSE)):
            raise unavailable(error) from error


def unavailable(error: BaseException) -> BusUnavailable:
    """Return what to raise for *error*, also for that of a deadline of the caller's own."""
    return BusUnavailable(f"Redis did not answer: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return why there was no response, without the command, which may hold a password."""
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
                # Raised by asyncio, and the only one without an errno.
                return "no TLS with it: nobody answered the handshake"
            case OSError() if one.strerror:
                return one.strerror
            case RedisConnectionError() if str(one) == _ENDED:
                return "it ended the connection"
            case _:
                pass
    return _OTHERWISE.get(type(error), type(error).__name__)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


# TLS

HANDSHAKE_SECONDS: Final = 4.0
"""Shorter than the deadline of a call, to tell a port without TLS from a slow server. A Redis
without TLS takes the begin of a handshake for an empty line, and waits for more."""


class _Trust:
    """Replaces the TLS context that redis-py keeps for the life of a connection object."""

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
        """Return a context for the next connection, with files read now."""
        with _naming(self._authorities):
            context = make_client_tls(self._authorities)
        if self._certificate is not None:
            with _naming(self._certificate, self._key):
                # Without a password, OpenSSL asks for that of an encrypted key on the terminal.
                context.load_cert_chain(self._certificate, self._key, password="")
        return context


@contextmanager
def _naming(*files: str | None) -> Iterator[None]:
    """Name *files* in what is raised: errors of the TLS library name none."""
    try:
        yield
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        names = " or ".join(file for file in files if file)
        raise NotServed(f"{names or 'authorities'} cannot be used: {why}") from error


class _Trusting:
    def __init__(self, *, trust: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context: Any = _Trust(**trust)

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = super()._connection_arguments()  # type: ignore[misc]  # of redis' connection
        return arguments | {"ssl_handshake_timeout": HANDSHAKE_SECONDS}


class TlsConnection(_Trusting, SSLConnection):
    """A TLS connection."""


class SentinelTlsConnection(_Trusting, SentinelManagedSSLConnection):
    """A TLS connection to the master that Sentinels name."""


# Sentinels


class SentinelRedis(Redis):
    """A client of the master; closes the clients of the Sentinels, too."""

    sentinels: Sentinels | None = None

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        if self.sentinels is not None:
            await self.sentinels.aclose()


class Sentinels(Sentinel):
    """Queries the Sentinels in turn for the master, beginning with the last that knew it.

    redis-py's class gives no reasons if it fails, and stops at a Sentinel that refuses.
    """

    def __init__(self, clients: list[Redis]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]  # redis leaves it untyped
        self.sentinels = clients

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the master's host and port.

        Raises:
            NotServed: If no Sentinel names a master that is up, with each Sentinel's reason.
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
    """Return a client of the Redis at *url*; it does not connect yet.

    It uses RESP2, since RESP3 begins with HELLO, which the gateways' Redis user need not be allowed
    to call. A call on a dead connection is repeated once at once; further retries are left to the
    caller.
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
            settings = _settings(_SlotRetry, attempts=len(place.nodes) + 1)
            pool: ConnectionPool = ConnectionPool(
                connection_class=kind, slot=_Slot(place.nodes), **settings, **trust, **place.options
            )
            return _SlotRedis.from_pool(pool)
        case _:
            assert_never(place.kind)


def is_sharded(redis: Redis) -> bool:
    """Return whether *redis* is a cluster, which needs SPUBLISH and SSUBSCRIBE."""
    return isinstance(redis, _SlotRedis)


async def check_master(redis: Redis) -> None:
    """Drop idle connections if the Sentinels name another master now.

    A master that is cut off from the Sentinels still responds as before.
    """
    if isinstance(redis, SentinelRedis):
        pool = redis.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            await pool.get_master_address()  # type: ignore[no-untyped-call]  # redis leaves it so


def named_master(redis: Redis) -> tuple[str, int] | None:
    """Return the master that the Sentinels named last to *redis*; None if there is none."""
    pool = redis.connection_pool
    return pool.master_address if isinstance(pool, SentinelConnectionPool) else None


def _settings(kind: type[Retry] = Retry, *, attempts: int = 1) -> dict[str, Any]:
    again = kind(NoBackoff(), attempts, supported_errors=(RedisConnectionError,))
    return {
        "socket_timeout": CALL_SECONDS,
        "socket_connect_timeout": CALL_SECONDS,
        "protocol": 2,
        "retry": again,
        # Do not send CLIENT SETINFO, which the gateways' user may not call.
        "driver_info": None,
    }


def _by_tls(place: RedisAddress, plain: type, secured: type) -> tuple[type, dict[str, Any]]:
    """Return the connection class, and its further arguments."""
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


# Redis Cluster


class _SlotRedis(Redis):
    """A client of the cluster node that serves the installation's slot."""


class _SlotRetry(Retry):
    """Also repeats a call while the slot migrates, until :data:`CALL_SECONDS` have passed.

    A transaction uses several keys, some of which are new. Neither node executes it before all keys
    have arrived, not even after ASKING: the source responds ASK or TRYAGAIN, the target TRYAGAIN.
    """

    async def call_with_retry(self, *args: Any, **options: Any) -> Any:
        """Return the result of the call."""
        clock = asyncio.get_running_loop().time
        until, pause = clock() + CALL_SECONDS, _SHORTEST_PAUSE
        while True:
            try:
                return await super().call_with_retry(
                    *args, **options | {"is_retryable": _is_retryable}
                )
            except SlotMigrating:
                if clock() + pause >= until:
                    raise
                # Here, so that the error of a caller with a shorter deadline has this cause.
                await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _is_retryable(error: Exception) -> bool:
    return not isinstance(error, SlotMigrating)


_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two tries while the slot migrates."""


class _Slot:
    """The node that serves the slot, as far as known; shared by the connections of one client."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self._seeds = seeds
        self._next = 0
        self._moved_to: Node | None = None
        self._failures: dict[Node, str] = {}

    def node(self) -> Node:
        """Return the node to connect to."""
        return self._moved_to or self._seeds[self._next % len(self._seeds)]

    def moved(self, node: Node) -> str:
        """Note that the slot is at *node*; return the reason for people."""
        self._moved_to = node
        failure = self._failures.get(node)
        if failure is not None:
            return f"the slot is at a node that cannot be reached: {failure}"
        return "the slot is elsewhere"

    def connected(self, node: Node) -> None:
        """Forget the failure of *node*."""
        self._failures.pop(node, None)

    def failed(self, node: Node, why: str) -> None:
        """Note a failure of *node*; try the next one if this was the node to connect to."""
        self._failures[node] = why
        if node == self.node():
            self._moved_to = None
            self._next += 1


class _FollowsSlot:
    """Connects to the node of the slot, and disconnects on a response that the slot has moved.

    The kernel accepts connections for a process that hangs. So a node that leaves a command without
    a response counts as failed too, and the next connection asks another node where the slot is.
    """

    host: str
    port: int

    def __init__(self, *, slot: _Slot, **options: Any) -> None:
        self._slot = slot
        self._unanswered = False
        """Whether no response has arrived since the last command."""
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

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        self._unanswered = True
        await super().send_packed_command(*args, **options)  # type: ignore[misc]  # as above

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            response = await super().read_response(*args, **options)  # type: ignore[misc]  # as above
        except MovedError as error:
            await self._break(self._slot.moved((error.host or self.host, error.port)))
        except (AskError, TryAgainError):
            await self._break("the slot is on its way to another node", SlotMigrating)
        except ClusterDownError:
            why = "the slot is not served here"
            self._slot.failed((self.host, self.port), why)
            await self._break(why)
        except (RedisTimeoutError, asyncio.CancelledError):
            # A caller with a shorter deadline than the connection's cancels the read.
            self._note_silence()
            raise
        if response is None and self._unanswered and options.get("timeout") is not None:
            self._note_silence()  # redis-py returns None for a subscription without confirmation
        else:
            self._unanswered = False
        return response

    def _note_silence(self) -> None:
        self._slot.failed((self.host, self.port), "it did not answer in time")

    async def _break(self, why: str, kind: type[NotServed] = NotServed) -> None:
        # The node has not executed the command, so redis-py may send it again to another one.
        await self.disconnect(nowait=True)  # type: ignore[attr-defined]  # of redis' connection
        raise kind(why)


class _SlotConnection(_FollowsSlot, Connection):
    pass


class _SlotTlsConnection(_FollowsSlot, TlsConnection):
    pass
