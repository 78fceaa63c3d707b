"""The phases of a downstream connection's request and response, as one table.

The state of a connection is this phase, its read side, and its write side (full or not). The phase
changes only by :data:`NEXT`; an event that a phase does not list is a bug of the gateway and raises
KeyError. The read side follows from the phase, the write side and the buffered input: see
:data:`ON_DATA` and :meth:`gateway.core.downstream.connection.Connection.sync_reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class Phase(IntEnum):
    """The phase of a request and its response."""

    HEAD = 0
    """Awaits a request head, or the rest of one."""
    DECIDING = 1
    """The head was read; the access decision is pending."""
    CONNECTING = 2
    """The request is admitted; an upstream connection is awaited."""
    UPLOADING = 3
    """The request body is being sent; the response has not started."""
    WAITING = 4
    """The whole request was sent; the response has not started."""
    EARLY_RESPONSE = 5
    """The response has started before the request body has ended."""
    RESPONDING = 6
    """The whole request was sent, and the response has started."""
    LINGERING = 7
    """The last response was written; input is discarded until the connection closes."""
    HANDED_OVER = 8
    """A tunnel, a bridge or a page owns the transport."""
    CLOSED = 9


class Event(IntEnum):
    """What happened, in the past tense."""

    HEAD_READ = 0
    ADMITTED = 1
    SENDING = 2
    """The request head was sent to the app, and body bytes will follow."""
    SENT = 3
    """The whole request was sent to the app."""
    RESPONSE_STARTED = 4
    """The head of the final response was written."""
    STALE = 5
    """A pooled connection closed before it sent a byte: the request is sent again."""
    COMPLETED = 6
    """The response is complete, and the connection persists."""
    ENDED = 7
    """The last response was written: a refusal, an early one, or one that ends the connection."""
    SWITCHED = 8
    """The transport was handed over to a tunnel, a bridge or a page."""
    LOST = 9
    """The connection was closed by either side, or the browser has left."""


class OnData(IntEnum):
    """What a phase does with received bytes."""

    PARSE_HEAD = 0
    FORWARD = 1
    """Forwards them to the app as fast as the app takes them."""
    BUFFER = 2
    """Buffers them: a pipelined request, or a body without an upstream connection yet."""
    DISCARD = 3


class OnFin(IntEnum):
    """What a phase does on a FIN: the browser has left (as in nginx; RFC 9112, section 9.6)."""

    FLUSH = 0
    """Complete responses are still sent."""
    ABORT = 1
    """The upstream connection is closed, and a response that has started is cut off."""


class OnDeadline(IntEnum):
    """What a phase does when its deadline passes."""

    NONE = 0
    CLOSE = 1
    """Sends 408 within a head; otherwise closes the connection."""
    CHECK_UPLOAD = 2
    TIME_OUT = 3
    """Sends 504: the app is too slow."""


class Row(NamedTuple):
    """What a phase does on each unsolicited event."""

    on_data: OnData
    on_fin: OnFin
    on_deadline: OnDeadline


P, E = Phase, Event

ROWS: Final[Mapping[Phase, Row]] = {
    P.HEAD: Row(OnData.PARSE_HEAD, OnFin.FLUSH, OnDeadline.CLOSE),
    P.DECIDING: Row(OnData.BUFFER, OnFin.ABORT, OnDeadline.NONE),  # its steps have deadlines
    P.CONNECTING: Row(OnData.BUFFER, OnFin.ABORT, OnDeadline.TIME_OUT),
    P.UPLOADING: Row(OnData.FORWARD, OnFin.ABORT, OnDeadline.CHECK_UPLOAD),
    P.WAITING: Row(OnData.BUFFER, OnFin.ABORT, OnDeadline.TIME_OUT),
    P.EARLY_RESPONSE: Row(OnData.FORWARD, OnFin.ABORT, OnDeadline.CHECK_UPLOAD),
    P.RESPONDING: Row(OnData.BUFFER, OnFin.ABORT, OnDeadline.NONE),  # it may be an event stream
    P.LINGERING: Row(OnData.DISCARD, OnFin.FLUSH, OnDeadline.NONE),
    P.HANDED_OVER: Row(OnData.DISCARD, OnFin.FLUSH, OnDeadline.NONE),
    P.CLOSED: Row(OnData.DISCARD, OnFin.FLUSH, OnDeadline.NONE),
}

NEXT: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (P.HEAD, E.HEAD_READ): P.DECIDING,
    (P.HEAD, E.ENDED): P.LINGERING,  # a malformed head, or one that took too long
    (P.HEAD, E.LOST): P.CLOSED,  # the browser has left, or an idle connection is closed
    (P.DECIDING, E.ADMITTED): P.CONNECTING,
    (P.DECIDING, E.COMPLETED): P.HEAD,  # a refusal of a request without a body
    (P.DECIDING, E.ENDED): P.LINGERING,
    (P.DECIDING, E.SWITCHED): P.HANDED_OVER,  # a bridge, or a page
    (P.DECIDING, E.LOST): P.CLOSED,
    (P.CONNECTING, E.SENDING): P.UPLOADING,
    (P.CONNECTING, E.SENT): P.WAITING,
    (P.CONNECTING, E.COMPLETED): P.HEAD,  # the app cannot be reached, or access has ended
    (P.CONNECTING, E.ENDED): P.LINGERING,
    (P.CONNECTING, E.LOST): P.CLOSED,
    (P.UPLOADING, E.SENT): P.WAITING,
    (P.UPLOADING, E.RESPONSE_STARTED): P.EARLY_RESPONSE,
    (P.UPLOADING, E.ENDED): P.LINGERING,  # 408, 502, 504; a malformed chunk
    (P.UPLOADING, E.LOST): P.CLOSED,
    (P.WAITING, E.STALE): P.CONNECTING,
    (P.WAITING, E.RESPONSE_STARTED): P.RESPONDING,
    (P.WAITING, E.COMPLETED): P.HEAD,  # 502 and 504, where there was no body
    (P.WAITING, E.ENDED): P.LINGERING,
    (P.WAITING, E.SWITCHED): P.HANDED_OVER,  # 101
    (P.WAITING, E.LOST): P.CLOSED,
    (P.EARLY_RESPONSE, E.SENT): P.RESPONDING,
    (P.EARLY_RESPONSE, E.ENDED): P.LINGERING,  # an early response is complete
    (P.EARLY_RESPONSE, E.LOST): P.CLOSED,
    (P.RESPONDING, E.COMPLETED): P.HEAD,  # pipelined requests follow in a later turn
    (P.RESPONDING, E.ENDED): P.LINGERING,
    (P.RESPONDING, E.LOST): P.CLOSED,  # the browser has left, or the app's response was cut off
    (P.LINGERING, E.LOST): P.CLOSED,
    (P.HANDED_OVER, E.LOST): P.CLOSED,
}

ON_DATA: Final = tuple(ROWS[phase].on_data for phase in Phase)
ON_FIN: Final = tuple(ROWS[phase].on_fin for phase in Phase)
ON_DEADLINE: Final = tuple(ROWS[phase].on_deadline for phase in Phase)


def transitions(event: Event) -> dict[Phase, Phase]:
    """Return where *event* leads from each phase that lists it, for use on the hot path.

    Looking up an enumeration member costs more than the rest of a transition.
    """
    return {phase: then for (phase, one), then in NEXT.items() if one is event}
