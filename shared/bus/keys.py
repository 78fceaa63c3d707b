"""The names of an installation's keys, and constants that both sides of the bus use."""

from __future__ import annotations

from typing import Final

HEARTBEAT_SECONDS: Final = 1.0
LOG_LENGTH: Final = 16384
CALL_SECONDS: Final = 5.0


class Keys:
    """The names of one installation's keys; all are in one slot of a Redis Cluster."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._key = f"fumarole:{{{instance}}}:"
        self.routes = f"{self._key}routes"
        """Hash: sid to route."""
        self.revoked = f"{self._key}revoked"
        """Sorted set of revocations."""
        self.head = f"{self._key}head"
        """Hash: the head."""
        self.log = f"{self._key}log"
        """Stream of the last events."""
        self.events = f"{self._key}events"
        """The channel of events."""
        self.store = f"{self._key}store"
        """String: identity and revision of the store that the table was published from."""
        self.asks = f"{self._key}asks"
        """Stream of sign-out requests."""

    def used(self, jti: str) -> str:
        """String: the first use of a token."""
        return f"{self._key}used:{jti}"

    def gateway(self, name: str) -> str:
        """String: the report of a gateway process."""
        return f"{self._key}gateway:{name}"

    def activity(self, sid: str) -> str:
        """Hash: the activity of a session by gateway process."""
        return f"{self._key}activity:{sid}"

    def pending(self, epoch: str) -> tuple[str, str]:
        """Return the keys in which a publisher collects the routes and revocations of a new epoch.

        Each epoch has its own keys: a leader and one that has lost leadership without noticing may
        both be writing, and their data must not mix.
        """
        return f"{self.routes}:next:{epoch}", f"{self.revoked}:next:{epoch}"


def bytes_of(value: object) -> bytes:
    """Return *value*, a string of Redis.

    Raises:
        TypeError: If it is anything else.
    """
    if not isinstance(value, bytes):
        raise TypeError("no string")
    return value


def text_of(data: bytes) -> str:
    """Return *data* as text; invalid UTF-8 is replaced, since Redis may hold anything."""
    return data.decode(errors="replace")
