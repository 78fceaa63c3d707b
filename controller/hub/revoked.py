"""Whose grants have been revoked, as far as shells are concerned.

The gateway ends a revoked user's connection. The user's typed text stays in the shell (a
function named ``sudo``, say), which others share: so the hub must know of revocations, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.store.sessions.revocations import StoredRevocation
from shared.link import ATTACH_SECONDS, Attach


@dataclass(frozen=True, slots=True)
class Holder:
    """By whose grant a client is attached. ``jti`` and ``kid`` are None where none was told."""

    sub: str
    jti: str | None
    kid: str | None
    issued_at: float


def holder_of(attach: Attach) -> Holder:
    """Return whose grant *attach* was made from.

    A gateway of before tells none: then the attach itself counts as what was issued, so that what
    revokes a user or everybody is known, and what revokes one grant is not.
    """
    grant = attach.grant
    if grant is None:
        return Holder(attach.sub, None, None, attach.exp - ATTACH_SECONDS)
    return Holder(attach.sub, grant.jti, grant.kid, grant.issued_at)


class Revocations:
    """The revocations that a grant could still outlive."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[str, StoredRevocation] = {}

    def take(self, revocations: Iterable[StoredRevocation]) -> bool:
        """Take in *revocations*; say whether anything is new."""
        new = False
        for one in revocations:
            known = self._at.get(one.member)
            if known is None or known.at < one.at:
                self._at[one.member] = one
                new = True
        return new

    def forget(self, now: float) -> None:
        """Drop those that no grant can outlive."""
        for member in [name for name, one in self._at.items() if one.score < now]:
            del self._at[member]

    def cover(self, sid: str, holder: Holder) -> bool:
        """Say whether *holder*'s grant to *sid* was revoked; see ``RouteTable.is_revoked``."""
        told = holder.jti is not None
        if told and (f"jti:{holder.jti}" in self._at or f"kid:{holder.kid}" in self._at):
            return True
        by_user = (self._at.get(f"sub:{sid}:{holder.sub}"), self._at.get(f"all:{sid}"))
        return any(one is not None and holder.issued_at <= one.at for one in by_user)
