"""Session tokens used as bearer: verified, marked in Redis at first, remembered.

``used:<jti>`` is set once, to ``open`` or ``bearer``. A token that opened a session is no bearer
any more; one that was a bearer first stays one until it expires, and never opens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gateway.relay.world import BearerRefused
from shared.errors import BusUnavailable, TokenRefused
from shared.tokens import LEEWAY_SECONDS, SessionClaims, peek, verify_session_token

if TYPE_CHECKING:
    from shared.bus import Mark
    from shared.jws import VerificationKey

KEPT_SECONDS: Final = 60
"""A mark is kept until the token's ``exp`` and this much longer."""

UNSURE_SECONDS: Final = 10
"""A token issued up to this long after Redis lost its marks may have been used before."""

_REMEMBERED: Final = 4096

V = TypeVar("V")


class Marking(Protocol):
    """Marks a token as used; see :meth:`shared.bus.BusReader.mark_used`."""

    def __call__(self, jti: str, use: str, *, kept_until: float, now: float) -> Awaitable[Mark]:
        """Return how it was used before, and the head at that moment."""
        ...


class TokenGate:
    """Verifies bearers; see :class:`gateway.relay.world.BearerGate`.

    Args:
        issuer: The only issuer whose tokens count.
        keys_for: Returns the issuer's keys, asked once more when a ``kid`` is unknown.
        mark_used: Marks a token in Redis.
        epoch: Returns the epoch of the table in use.
        wall: Unix seconds.
    """

    def __init__(
        self,
        *,
        issuer: str,
        keys_for: Callable[[str], Awaitable[Mapping[str, VerificationKey]]],
        mark_used: Marking,
        epoch: Callable[[], str | None],
        wall: Callable[[], float],
    ) -> None:
        self._issuer = issuer
        self._keys_for = keys_for
        self._mark_used = mark_used
        self._epoch = epoch
        self._wall = wall
        self._good: OrderedDict[str, SessionClaims] = OrderedDict()
        self._marked: OrderedDict[str, float] = OrderedDict()

    def remembered(self, token: str) -> SessionClaims | None:
        """Return the claims of a token that was verified and marked before, while it is good."""
        claims = self._good.get(token)
        if claims is None:
            return None
        if self._wall() >= claims.exp + LEEWAY_SECONDS:
            del self._good[token]
            return None
        return claims if claims.jti in self._marked else None

    async def verify(self, token: str) -> SessionClaims:
        """Return the claims of *token*.

        Raises:
            BearerRefused: ``bad_credential``.
        """
        try:
            seen = peek(token)
            claims = verify_session_token(
                seen, keys=await self._keys_for(seen.kid), issuer=self._issuer, now=self._wall()
            )
        except TokenRefused as error:
            raise BearerRefused("bad_credential") from error
        _remember(self._good, token, claims)
        return claims

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer, unless that is known already.

        Raises:
            BearerRefused: ``token_spent``, ``bus_lost`` or ``token_unsure``.
        """
        now = self._wall()
        if self._marked.get(claims.jti, 0.0) > now:
            return
        try:
            mark = await self._mark_used(
                claims.jti, "bearer", kept_until=claims.exp + KEPT_SECONDS, now=now
            )
        except BusUnavailable as error:
            raise BearerRefused("bus_lost") from error
        if mark.head is None or mark.head.epoch != self._epoch():
            raise BearerRefused("bus_lost")
        if mark.head.since is not None and claims.iat < mark.head.since + UNSURE_SECONDS:
            raise BearerRefused("token_unsure")
        if mark.before not in (None, "bearer"):
            raise BearerRefused("token_spent")
        _remember(self._marked, claims.jti, float(claims.exp + LEEWAY_SECONDS))


def _remember(memory: OrderedDict[str, V], key: str, value: V) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
