"""The status of a session, for display: how far its start has come, or how it ended.

The controller writes a status into a route, and into the event that removes the route. A status
decides nothing. A route with a malformed status is served as if it had none.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shared.errors import UnreadableRoute

MOST_BYTES: Final = 4096
"""The maximum size of a status as JSON."""
MOST_DETAIL: Final = 700
MOST_APP: Final = 128
MOST_NAME: Final = 48
"""The limits of texts, in characters. They keep each status within :data:`MOST_BYTES`."""

NO_HUB: Final = "no_hub"
"""The reason of a terminal whose program runs while no hub does."""

_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z_]{0,31}$")]
_Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The status of a session, for display.

    - ``phase`` of a live session: ``queued``, ``suspended``, ``preparing``, ``starting`` or
      ``ready``. Of an ended session: ``finished``, ``stopped``, ``failed``, ``expired``,
      ``out_of_funds``, ``evicted`` or ``closed`` (its job continues). Readers treat other words as
      an unknown phase.
    - ``since``: when the phase began; ``times``: when the earlier phases began (unix seconds).
    - ``reason``: a word for programs; ``detail``: a text for people.
    - ``app``: the name of the app; ``port``: the port on which it shall listen.
    - ``position``: the position of its job in the queue, beginning with 1.
    - ``by``: the user who stopped the job; never set for a web app, whose scripts could read it.
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
    """Return the status *raw*; None if it is too long or malformed."""
    data = bytes(raw)
    if len(data) > MOST_BYTES:
        return None
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def without_status(raw: bytes | msgspec.Raw) -> bytes:
    """Return the route *raw*, with or without a version, without its status.

    Raises:
        UnreadableRoute: If it is malformed or has no status.
    """
    try:
        whole = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableRoute("the route is malformed") from None
    route = whole.get("route", whole) if isinstance(whole, dict) else None
    if not isinstance(route, dict) or route.pop("status", None) is None:
        raise UnreadableRoute("the route has no status")
    return msgspec.json.encode(whole)


# The status of ended sessions, for display to users who return to one

MOST_ENDED: Final = 2048
"""The number of ended sessions that are remembered, with 4 KiB each at most."""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An ended session."""

    job: str
    status: Status | None
