"""How sessions ended, remembered for those who come back to one. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from shared.route_table.statuses import Status

MOST_ENDED: Final = 2048
"""Sessions that are remembered, 4 KiB each at most; of others it is known only that they ended."""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A session that was seen to end."""

    job: str
    status: Status | None


class EndedSessions(dict[str, Ended]):
    """The last sessions that were seen to end, by their ids; the oldest are forgotten."""

    def note(self, sid: str, ended: Ended) -> None:
        """Remember how *sid* ended."""
        self[sid] = ended
        if len(self) > MOST_ENDED:
            del self[next(iter(self))]

    def inherit(self, older: EndedSessions, *, living: Container[str]) -> None:
        """Remember also what *older* does, but of sessions that are *living* again."""
        later = self.copy()
        self.clear()
        for sid, ended in (older | later).items():
            if sid not in living:
                self.note(sid, ended)
