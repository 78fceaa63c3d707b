"""The names of an installation's keys, and the numbers that both sides of the bus go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEARTBEAT_SECONDS: Final = 1.0
LOG_LENGTH: Final = 16384
CALL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one installation's keys; all are in one slot of a Redis Cluster."""

    instance: str

    def _key(self, name: str) -> str:
        return f"fumarole:{{{self.instance}}}:{name}"

    @property
    def routes(self) -> str:
        """Hash: sid to route."""
        return self._key("routes")

    @property
    def revoked(self) -> str:
        """Sorted set of revocations."""
        return self._key("revoked")

    @property
    def head(self) -> str:
        """Hash: where the table stands."""
        return self._key("head")

    @property
    def log(self) -> str:
        """Stream of the last events."""
        return self._key("log")

    @property
    def events(self) -> str:
        """The channel."""
        return self._key("events")

    @property
    def store(self) -> str:
        """From which store the table was published: its identity and revision then."""
        return self._key("store")

    def used(self, jti: str) -> str:
        """How a token was first used."""
        return self._key(f"used:{jti}")

    def gateway(self, name: str) -> str:
        """How a gateway process stands."""
        return self._key(f"gateway:{name}")

    def activity(self, sid: str) -> str:
        """What gateways saw of a session."""
        return self._key(f"activity:{sid}")

    @property
    def asks(self) -> str:
        """Stream of the grants that users have ended at gateways."""
        return self._key("asks")

    def pending(self, epoch: str) -> tuple[str, str]:
        """Return where the routes and the revocations of an epoch are filled in.

        Each epoch has keys of its own: what two publishers fill in at the same time, the one that
        leads and the one that does not know yet that it does no more, must not be mixed.
        """
        return f"{self.routes}:next:{epoch}", f"{self.revoked}:next:{epoch}"
