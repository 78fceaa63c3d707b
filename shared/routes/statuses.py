"""A session's status, which people are shown: how far it has come, or how it ended.

The controller writes a status beside a route, and into the event that removes it. A status decides
nothing. One that cannot be read is no status, and its route is served as if it had none.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Final

import msgspec

from shared.errors import UnreadableRoute

MOST_BYTES: Final = 4096
"""Of a status as JSON."""
MOST_DETAIL: Final = 700
MOST_APP: Final = 128
MOST_NAME: Final = 48
"""Characters. With these no status is longer than :data:`MOST_BYTES`, whatever it is written in."""

_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]{0,31}$")]
_Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a session stands, for people.

    ``phase`` is ``queued``, ``suspended``, ``preparing``, ``starting`` or ``ready`` of a live one;
    ``finished``, ``stopped``, ``failed``, ``expired``, ``out_of_funds``, ``evicted`` or ``closed``
    (its job goes on) of one that has ended. Readers take other words for a phase that they do not
    know. ``since`` is when the phase began, ``times`` when the phases before did (unix seconds).
    ``reason`` is a word for programs and ``detail`` a text for people; ``app`` is what people call
    the app, ``port`` where it is to listen, ``position`` where its job stands in the queue (1 is
    next). ``by`` is who had the job stopped: never of a web app, whose scripts could read it.
    """

    phase: _Word
    since: _Time | None = None
    reason: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    detail: Annotated[str, msgspec.Meta(max_length=MOST_DETAIL)] | None = None
    app: Annotated[str, msgspec.Meta(max_length=MOST_APP)] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    position: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    by: Annotated[str, msgspec.Meta(max_length=MOST_NAME)] | None = None
    times: Annotated[tuple[tuple[_Word, _Time], ...], msgspec.Meta(max_length=6)] = ()


_decode = msgspec.json.Decoder(Status).decode


def read_status(raw: bytes | msgspec.Raw) -> Status | None:
    """Return the status *raw*; None if it is too long, or malformed."""
    data = bytes(raw)
    if len(data) > MOST_BYTES:
        return None
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def without_status(raw: bytes | msgspec.Raw) -> bytes:
    """Return the route *raw*, plain or of a version, without its status.

    Raises:
        UnreadableRoute: If it has none that could be taken out.
    """
    try:
        whole = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableRoute("the route is malformed") from None
    route = whole.get("route", whole) if isinstance(whole, dict) else None
    if not isinstance(route, dict) or route.pop("status", None) is None:
        raise UnreadableRoute("the route has no status")
    return msgspec.json.encode(whole)


# How sessions ended, remembered for those who come back to one. Nothing is decided by it.

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
