"""What the data path is given of the world outside: the table, the bus, Redis' marks."""

from __future__ import annotations

from typing import Protocol

from shared.routes.table import RouteTable
from shared.tokens import SessionClaims


class World(Protocol):
    """What the follower knows. Properties are read at many requests and must be cheap."""

    @property
    def table(self) -> RouteTable | None:
        """The table in use; None before the first snapshot."""

    @property
    def usable_table(self) -> RouteTable | None:
        """The table where it can be acted upon: :attr:`serving` and not :attr:`stale`.

        None where it is not, or where that begins or ends at this very moment. Read with every
        request.
        """

    @property
    def serving(self) -> bool:
        """False once the bus has been lost for longer than its grace: then all is 503."""

    @property
    def stale(self) -> bool:
        """True after this process was stopped: :meth:`repair` comes before any decision."""

    @property
    def dialling(self) -> bool:
        """False once the controller has been silent for longer than its grace."""

    async def repair(self) -> None:
        """Bring the table up to date, in at most 500 ms; rate-limited, and never fails.

        In at most 3 s after this process was stopped.
        """


class BearerGate(Protocol):
    """Verifies session tokens that are used as bearer, and marks them as used so."""

    def remembered(self, token: str) -> SessionClaims | None:
        """Return the claims of a token that was verified and marked before, while it is good."""

    async def verify(self, token: str, *, address: str) -> SessionClaims:
        """Return the claims of *token*, whose signature and times hold.

        Args:
            token: What a client sent.
            address: The client's; what it may cost is counted by it.

        Raises:
            OpeningRefused: ``bad_credential`` or ``too_many_checks``.
        """

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer; the last check, so that no refused try costs a link.

        Raises:
            OpeningRefused: ``token_spent`` when it opened a session, ``bus_lost`` or
                ``token_unsure`` when that is not known.
        """
