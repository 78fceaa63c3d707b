"""Makes a client from ``FUMAROLE_REDIS_URL``: of one Redis, of Sentinels, or of a Redis Cluster.

The result is always an ordinary client of one server.
"""

from __future__ import annotations

from typing import Any, assert_never

from redis.asyncio import Connection, ConnectionPool, Redis, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from shared.bus.cluster import Slot, SlotConnection, SlotRedis, SlotRetry, SlotTlsConnection
from shared.bus.keys import CALL_SECONDS
from shared.bus.parser import BoundedParser
from shared.bus.tls import SentinelTlsConnection, TlsConnection
from shared.bus.translation import NotServed, reason_of
from shared.bus.urls import Node, RedisAddress, parse_url


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
            kind, trust = _by_tls(place, SlotConnection, SlotTlsConnection)
            settings = _settings(SlotRetry, attempts=len(place.nodes) + 1)
            pool: ConnectionPool = ConnectionPool(
                connection_class=kind, slot=Slot(place.nodes), **settings, **trust, **place.options
            )
            return SlotRedis.from_pool(pool)
        case _:
            assert_never(place.kind)


def is_sharded(redis: Redis) -> bool:
    """Return whether *redis* is a cluster, which needs SPUBLISH and SSUBSCRIBE."""
    return isinstance(redis, SlotRedis)


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
        "parser_class": BoundedParser,
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
