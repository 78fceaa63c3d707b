"""A Redis Cluster as one server that moves, since all keys of an installation are in one slot.

The client follows MOVED responses and needs no ``CLUSTER`` commands, so that the gateways' user
need not be allowed to use them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import Connection, Redis
from redis.asyncio.retry import Retry
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.bus.keys import CALL_SECONDS
from shared.bus.tls import TlsConnection
from shared.bus.translation import NotServed, SlotMigrating, reason_of
from shared.bus.urls import Node

_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two tries while the slot migrates."""


class SlotRedis(Redis):
    """A client of the cluster node that serves the installation's slot."""


class SlotRetry(Retry):
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


class Slot:
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

    def __init__(self, *, slot: Slot, **options: Any) -> None:
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


class SlotConnection(_FollowsSlot, Connection):
    """A connection to the node of the slot."""


class SlotTlsConnection(_FollowsSlot, TlsConnection):
    """A TLS connection to the node of the slot."""
