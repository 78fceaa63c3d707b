"""Sentinels, which say who the master is; and why none of them did."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import RedisError

from shared.bus.translation import NotServed, reason_of


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
