"""From ``FUMAROLE_REDIS_URL`` to a client: one Redis, Sentinels, or a Redis Cluster.

==================================================  ============================================
``redis://user:password@host:6379/0``               one Redis; ``rediss`` with TLS
``unix://user:password@/path/of.sock``              one Redis on a Unix socket
``redis+sentinel://user:password@a,b:26379/name``   the master that Sentinels know as ``name``
``redis+cluster://user:password@a,b:6379``          whichever node of a cluster serves our slot
==================================================  ============================================

All of them end in an ordinary client of one server: all our keys are in one slot, so a cluster is
to us a server that moves. Where it went is learnt from its own MOVED, not from ``CLUSTER``
commands, which the gateways' user need not be allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.bus.keys import CALL_SECONDS
from shared.errors import BusUnavailable

Node: TypeAlias = tuple[str, int]

_PORTS: Final = {"sentinel": 26379, "cluster": 6379}
_TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})


@dataclass(frozen=True, slots=True)
class _Place:
    """What a URL of several nodes says. Its ``repr`` tells no secret."""

    kind: str
    nodes: tuple[Node, ...]
    service: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]

    def __repr__(self) -> str:
        return f"_Place({self.kind}, {self.nodes})"


def check_url(raw: str) -> str:
    """Return *raw* if :func:`connect` takes it.

    Raises:
        ValueError: If not; never with the URL itself, which may hold a password.
    """
    scheme = raw.partition("://")[0]
    if scheme in ("redis", "rediss", "unix"):
        try:
            ConnectionPool.from_url(raw)
        except (ValueError, TypeError):
            raise ValueError("not a URL of a Redis") from None
    else:
        _parse(raw)
    return raw


def connect(url: str) -> Redis:
    """Return a client of the Redis at *url*; nothing is sent yet.

    RESP2, since RESP3 begins with HELLO, which the gateways' Redis user need not be allowed. A
    call whose connection turns out to be dead is made once more at once, not later: whoever
    calls knows better when to try again.
    """
    if url.partition("://")[0] in ("redis", "rediss", "unix"):
        return Redis.from_url(url, **_settings(attempts=1))
    place = _parse(url)
    if place.kind == "cluster":
        slot = _Slot(place.nodes)
        options = {**_settings(attempts=len(place.nodes) + 1), **place.options}
        kind = _SlotTlsConnection if place.options.get("ssl") else _SlotConnection
        options.pop("ssl", None)
        pool: ConnectionPool = ConnectionPool(connection_class=kind, slot=slot, **options)
        return _SlotRedis.from_pool(pool)
    tls = {name: value for name, value in place.options.items() if name.startswith("ssl")}
    sentinels = Sentinel(  # type: ignore[no-untyped-call]  # redis leaves it untyped
        place.nodes, sentinel_kwargs={**_settings(attempts=1), **tls, **place.sentinel_options}
    )
    client: _SentinelRedis = sentinels.master_for(
        place.service, redis_class=_SentinelRedis, **_settings(attempts=1), **place.options
    )
    client.sentinels = sentinels
    return client


def is_sharded(redis: Redis) -> bool:
    """Say whether channels are in slots, too: then SPUBLISH and SSUBSCRIBE are to be used."""
    return isinstance(redis, _SlotRedis)


async def look_around(redis: Redis) -> None:
    """Have connections that are not in use dropped, if the Sentinels name another master by now.

    A master that was cut off from them answers as if nothing had happened.
    """
    if isinstance(redis, _SentinelRedis):
        pool = redis.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            await pool.get_master_address()  # type: ignore[no-untyped-call]  # as above


def _settings(*, attempts: int) -> dict[str, Any]:
    again = Retry(NoBackoff(), attempts, supported_errors=(RedisConnectionError,))
    return {
        "socket_timeout": CALL_SECONDS,
        "socket_connect_timeout": CALL_SECONDS,
        "protocol": 2,
        "retry": again,
        # CLIENT SETINFO is not among the commands that a gateway's user is allowed.
        "driver_info": None,
    }


def _parse(raw: str) -> _Place:
    """Return the nodes, the service and the options of a URL of several nodes."""
    url = urlsplit(raw)
    scheme, _, kind = url.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in _PORTS:
        raise ValueError(
            "not a redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// URL"
        )
    credentials, _, hosts = url.netloc.rpartition("@")
    nodes = tuple(_node(host, _PORTS[kind]) for host in hosts.split(",") if host)
    if not nodes:
        raise ValueError("the URL names no node")
    options, sentinel = _options(url.query)
    user, _, password = credentials.partition(":")
    options |= {"username": unquote(user)} if user else {}
    options |= {"password": unquote(password)} if password else {}
    options |= {"ssl": True} if scheme == "rediss" else {}
    service, _, database = url.path.strip("/").partition("/")
    if kind == "cluster" and service:
        raise ValueError("a Redis Cluster has no databases, and its URL no path")
    if kind == "sentinel":
        if not service:
            raise ValueError("the URL names no service: redis+sentinel://host/service")
        options["db"] = int(database or 0)
    return _Place(kind, nodes, service, options, sentinel)


def _options(query: str) -> tuple[dict[str, Any], dict[str, Any]]:
    options: dict[str, Any] = {}
    sentinel: dict[str, Any] = {}
    for name, value in parse_qsl(query):
        if name in _TLS_OPTIONS:
            options[name] = value
        elif name in _SENTINEL_OPTIONS:
            sentinel[name.removeprefix("sentinel_")] = value
        else:
            raise ValueError("the URL has an option that is not known")
    return options, sentinel


def _node(text: str, port: int) -> Node:
    host, colon, number = text.rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text, str(port)
    if not number.isdigit() or not 0 < int(number) < 65536:
        raise ValueError("a node's port is no port")
    return unquote(host).removeprefix("[").removesuffix("]"), int(number)


class _SentinelRedis(Redis):
    """A client of the master; closes what it asked the Sentinels with, too."""

    sentinels: Sentinel | None = None

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        if self.sentinels is not None:
            await self.sentinels.aclose()


class _SlotRedis(Redis):
    """A client of whichever node of a cluster serves our slot."""


class _Slot:
    """Where our slot is, as far as is known; shared by the connections of one client."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self._seeds = seeds
        self._next = 0
        self._moved_to: Node | None = None

    def node(self) -> Node:
        """Return the node to connect to."""
        return self._moved_to or self._seeds[self._next % len(self._seeds)]

    def moved(self, node: Node) -> None:
        """Take the slot to be at *node*."""
        self._moved_to = node

    def failed(self, node: Node) -> None:
        """Ask the next one, if *node* was the one to connect to."""
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
            except (RedisError, OSError):
                self._slot.failed(node)
                raise

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]  # as above
        except MovedError as error:
            self._slot.moved((error.host or self.host, error.port))
            await self._break("the slot is elsewhere")
        except (AskError, ClusterDownError):
            self._slot.failed((self.host, self.port))
            await self._break("the slot is not served here")

    async def _break(self, why: str) -> None:
        # What it was asked is asked again, elsewhere: nothing of it was done here.
        await self.disconnect(nowait=True)  # type: ignore[attr-defined]  # of redis' connection
        raise RedisConnectionError(why)


class _SlotConnection(_FollowsSlot, Connection):
    pass


class _SlotTlsConnection(_FollowsSlot, SSLConnection):
    pass


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
        if isinstance(error, RedisError | OSError | TimeoutError):
            raise BusUnavailable(f"Redis did not answer: {type(error).__name__}") from error


def _cancel_requests() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
