"""The names of an installation's keys, and the numbers that both sides of the bus go by."""

from __future__ import annotations

from typing import Final

HEARTBEAT_SECONDS: Final = 1.0
LOG_LENGTH: Final = 16384
CALL_SECONDS: Final = 5.0


class Keys:
    """The names of one installation's keys; all are in one slot of a Redis Cluster."""

    __slots__ = ("_key", "asks", "events", "head", "instance", "log", "revoked", "routes", "store")

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._key = f"fumarole:{{{instance}}}:"
        self.routes = f"{self._key}routes"
        """Hash: sid to route."""
        self.revoked = f"{self._key}revoked"
        """Sorted set of revocations."""
        self.head = f"{self._key}head"
        """Hash: where the table stands."""
        self.log = f"{self._key}log"
        """Stream of the last events."""
        self.events = f"{self._key}events"
        """The channel."""
        self.store = f"{self._key}store"
        """From which store the table was published: its identity and revision then."""
        self.asks = f"{self._key}asks"
        """Stream of the grants that users have ended at gateways."""

    def used(self, jti: str) -> str:
        """How a token was first used."""
        return f"{self._key}used:{jti}"

    def gateway(self, name: str) -> str:
        """How a gateway process stands."""
        return f"{self._key}gateway:{name}"

    def activity(self, sid: str) -> str:
        """What gateways saw of a session."""
        return f"{self._key}activity:{sid}"

    def pending(self, epoch: str) -> tuple[str, str]:
        """Return where the routes and the revocations of an epoch are filled in.

        Each epoch has keys of its own: what two publishers fill in at the same time, the one that
        leads and the one that does not know yet that it does no more, must not be mixed.
        """
        return f"{self.routes}:next:{epoch}", f"{self.revoked}:next:{epoch}"


def text_of(data: bytes) -> str:
    """Return *data* as text: whatever stands in Redis ends no process."""
    return data.decode(errors="replace")
