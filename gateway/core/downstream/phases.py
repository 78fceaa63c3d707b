"""The phases of a downstream connection's request and response: one table.

A connection's state is this phase, its read side and its write side (full or not).
The phase changes by :data:`NEXT` only; an event that a phase does not list is a bug of ours, and
raises KeyError. The read side follows from phase, write side and what waits: :data:`TAKES` and
:meth:`gateway.core.downstream.connection.Connection.regulate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Phase(IntEnum):
    """Where a request and its response are."""

    HEAD = 0
    """A request's head is awaited, or the rest of it."""
    DECIDING = 1
    """The head is known; whether it may pass is being decided."""
    CONNECTING = 2
    """It may; a connection to the app is awaited."""
    UPLOADING = 3
    """The request's body is being sent; the response has not begun."""
    WAITING = 4
    """The whole request was sent; the response has not begun."""
    BOTH = 5
    """The response has begun before the request's body has ended."""
    RESPONDING = 6
    """The whole request was sent, and the response has begun."""
    LINGERING = 7
    """The last response was written; what still comes is discarded until the connection closes."""
    PASSED_ON = 8
    """A tunnel, a bridge or a page has the transport."""
    GONE = 9


class Event(IntEnum):
    """What happens, past tense."""

    HEAD_READ = 0
    ADMITTED = 1
    SENDING = 2
    """The app has the request's head, and more of the request is to come."""
    SENT = 3
    """The app has been sent the whole request."""
    RESPONDED = 4
    """The head of the final response was written."""
    STALE = 5
    """A pooled connection died before a byte came: the request is sent once more."""
    ANSWERED = 6
    """The response is complete, and the connection is kept."""
    ENDED = 7
    """The last response was written: a refusal, an early one, or one that ends the connection."""
    SWITCHED = 8
    """The transport was given to a tunnel, a bridge or a page."""
    LOST = 9
    """The connection is closed, by whomever; or its browser has left."""


class Takes(IntEnum):
    """What a phase makes of the bytes that come."""

    HEADS = 0
    BODY = 1
    """They go on to the app, as it takes them."""
    NOTHING = 2
    """They wait: a pipelined request, or a body for which there is no connection yet."""
    DISCARDS = 3


class Left(IntEnum):
    """What a phase makes of a FIN: the browser has left (as nginx reads it, RFC 9112, 9.6)."""

    FLUSHES = 0
    """Responses that are complete still go out."""
    DROPS = 1
    """The app's connection is freed, and a response that has begun is cut off."""


class Due(IntEnum):
    """What a phase makes of its deadline."""

    NEVER = 0
    CLOSES = 1
    """408 within a head; else the connection closes."""
    JUDGES_UPLOAD = 2
    TIMES_OUT = 3
    """504: the app is too slow."""


class Row(NamedTuple):
    """What a phase makes of what is not asked for."""

    takes: Takes
    left: Left
    due: Due


P, E = Phase, Event

ROWS: Final[Mapping[Phase, Row]] = MappingProxyType(
    {
        P.HEAD: Row(Takes.HEADS, Left.FLUSHES, Due.CLOSES),
        P.DECIDING: Row(Takes.NOTHING, Left.DROPS, Due.NEVER),  # its parts have deadlines
        P.CONNECTING: Row(Takes.NOTHING, Left.DROPS, Due.TIMES_OUT),
        P.UPLOADING: Row(Takes.BODY, Left.DROPS, Due.JUDGES_UPLOAD),
        P.WAITING: Row(Takes.NOTHING, Left.DROPS, Due.TIMES_OUT),
        P.BOTH: Row(Takes.BODY, Left.DROPS, Due.JUDGES_UPLOAD),
        P.RESPONDING: Row(Takes.NOTHING, Left.DROPS, Due.NEVER),  # it may be events
        P.LINGERING: Row(Takes.DISCARDS, Left.FLUSHES, Due.NEVER),
        P.PASSED_ON: Row(Takes.DISCARDS, Left.FLUSHES, Due.NEVER),
        P.GONE: Row(Takes.DISCARDS, Left.FLUSHES, Due.NEVER),
    }
)

NEXT: Final[Mapping[tuple[Phase, Event], Phase]] = MappingProxyType(
    {
        (P.HEAD, E.HEAD_READ): P.DECIDING,
        (P.HEAD, E.ENDED): P.LINGERING,  # a malformed head, or one that took too long
        (P.HEAD, E.LOST): P.GONE,  # a browser that leaves, or an idle connection closed by us
        (P.DECIDING, E.ADMITTED): P.CONNECTING,
        (P.DECIDING, E.ANSWERED): P.HEAD,  # a refusal of a request without a body
        (P.DECIDING, E.ENDED): P.LINGERING,
        (P.DECIDING, E.SWITCHED): P.PASSED_ON,  # a bridge, or a page
        (P.DECIDING, E.LOST): P.GONE,
        (P.CONNECTING, E.SENDING): P.UPLOADING,
        (P.CONNECTING, E.SENT): P.WAITING,
        (P.CONNECTING, E.ANSWERED): P.HEAD,  # the app cannot be reached, or the right has ended
        (P.CONNECTING, E.ENDED): P.LINGERING,
        (P.CONNECTING, E.LOST): P.GONE,
        (P.UPLOADING, E.SENT): P.WAITING,
        (P.UPLOADING, E.RESPONDED): P.BOTH,
        (P.UPLOADING, E.ENDED): P.LINGERING,  # 408, 502, 504; a malformed chunk
        (P.UPLOADING, E.LOST): P.GONE,
        (P.WAITING, E.STALE): P.CONNECTING,
        (P.WAITING, E.RESPONDED): P.RESPONDING,
        (P.WAITING, E.ANSWERED): P.HEAD,  # 502 and 504, where there was no body
        (P.WAITING, E.ENDED): P.LINGERING,
        (P.WAITING, E.SWITCHED): P.PASSED_ON,  # 101
        (P.WAITING, E.LOST): P.GONE,
        (P.BOTH, E.SENT): P.RESPONDING,
        (P.BOTH, E.ENDED): P.LINGERING,  # an early response is complete
        (P.BOTH, E.LOST): P.GONE,
        (P.RESPONDING, E.ANSWERED): P.HEAD,  # what was pipelined is taken up in a later turn
        (P.RESPONDING, E.ENDED): P.LINGERING,
        (P.RESPONDING, E.LOST): P.GONE,  # left, or reset because the app's response broke off
        (P.LINGERING, E.LOST): P.GONE,
        (P.PASSED_ON, E.LOST): P.GONE,
    }
)

TAKES: Final = tuple(ROWS[phase].takes for phase in Phase)
LEFT: Final = tuple(ROWS[phase].left for phase in Phase)
DUE: Final = tuple(ROWS[phase].due for phase in Phase)


def after(event: Event) -> dict[Phase, Phase]:
    """Return where *event* leads from each phase that lists it, for those that ask often.

    A member of an enumeration costs more to look up than all the rest of a transition.
    """
    return {phase: then for (phase, one), then in NEXT.items() if one is event}
