"""The states of connections and of large bodies: one table, which the code steps through.

A state changes by :func:`step` only. An event that a state does not list is a bug
of ours, and raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class State(IntEnum):
    """Downstream first, then upstream, then large bodies."""

    HEAD = 0
    """Waiting for a request's head, or for the rest of it."""
    DECIDING = 1
    """The request is known; a proof, a repair or a connection to the app is awaited."""
    RELAYING = 2
    """The request is being sent to the app, or its answer to the browser."""
    LINGERING = 3
    """The last answer was written and our side shut down; what still comes is discarded."""
    PASSED_ON = 4
    """A tunnel, a bridge or a page has the transport."""
    GONE = 5

    IDLE = 10
    """In the pool: whatever comes now was not asked for."""
    BUSY = 11
    """Carries one request and its answer."""
    SPLICED = 12
    """Carries a tunnel."""
    CLOSED = 13

    EMPTYING = 20
    """What was read of the body before is still being written."""
    FLOWING = 21
    """Its source is waited for; the pipe is empty, or there is none."""
    BLOCKED = 22
    """Its sink is waited for; the pipe holds bytes."""
    OVER = 23
    """Nothing is moved any more."""


class Event(IntEnum):
    """What happens, past tense."""

    HEAD_READ = 0
    """A strict head came, which needs to be waited for something."""
    SENT = 1
    """The request was sent to the app."""
    ANSWERED = 2
    """The answer is complete and the connection is kept."""
    STALE = 3
    """A pooled connection died before a byte came: the request is sent once more."""
    REFUSED = 4
    """The last answer was written: a refusal, an early answer, or one that ends with the
    connection."""
    SWITCHED = 5
    """The transport was given to a tunnel, a bridge or a page."""
    LOST = 6
    """The transport is closed, by whomever."""
    TAKEN = 7
    """A request took the connection out of the pool."""
    RETURNED = 8
    """Its answer was complete, and nothing speaks against another one."""
    EMPTIED = 9
    """The sink's transport has nothing more to write."""
    BLOCKED = 10
    """The sink did not take all."""
    FREED = 11
    """It has taken the rest."""
    PASSED = 12
    """The sink has taken the body's last byte."""
    HANDED_BACK = 13
    """There is no pipe, or the source has ended: the transports go on."""


S, E = State, Event

NEXT: Final[Mapping[tuple[int, int], State]] = MappingProxyType(
    {
        # Downstream
        (S.HEAD, E.HEAD_READ): S.DECIDING,
        (S.HEAD, E.REFUSED): S.LINGERING,  # a malformed head, or one that took too long
        (S.HEAD, E.LOST): S.GONE,  # a browser that leaves, or an idle connection closed by us
        (S.DECIDING, E.SENT): S.RELAYING,
        (S.DECIDING, E.ANSWERED): S.HEAD,  # a refusal of a request without a body
        (S.DECIDING, E.REFUSED): S.LINGERING,
        (S.DECIDING, E.SWITCHED): S.PASSED_ON,
        (S.DECIDING, E.LOST): S.GONE,  # left, or revoked, while it was being dialled
        (S.RELAYING, E.ANSWERED): S.HEAD,  # what was pipelined is taken up now
        (S.RELAYING, E.STALE): S.DECIDING,
        (S.RELAYING, E.REFUSED): S.LINGERING,  # an early answer to an upload; 502 and 504
        (S.RELAYING, E.SWITCHED): S.PASSED_ON,  # 101
        (S.RELAYING, E.LOST): S.GONE,  # left, or reset because the app's answer broke off
        (S.LINGERING, E.LOST): S.GONE,
        (S.PASSED_ON, E.LOST): S.GONE,  # the app left between its 101 and the splice
        # Upstream
        (S.IDLE, E.TAKEN): S.BUSY,
        (S.IDLE, E.LOST): S.CLOSED,  # closed by the app, unasked bytes, too old, another target
        (S.BUSY, E.RETURNED): S.IDLE,
        (S.BUSY, E.SWITCHED): S.SPLICED,
        (S.BUSY, E.LOST): S.CLOSED,
        (S.SPLICED, E.LOST): S.CLOSED,
        # Large bodies
        (S.EMPTYING, E.EMPTIED): S.FLOWING,
        (S.EMPTYING, E.LOST): S.OVER,  # here and below: a connection, or the right to it
        (S.FLOWING, E.BLOCKED): S.BLOCKED,
        (S.FLOWING, E.PASSED): S.OVER,
        (S.FLOWING, E.HANDED_BACK): S.OVER,
        (S.FLOWING, E.LOST): S.OVER,
        (S.BLOCKED, E.FREED): S.FLOWING,
        (S.BLOCKED, E.PASSED): S.OVER,
        (S.BLOCKED, E.LOST): S.OVER,
    }
)


LAST: Final = (State.GONE, State.CLOSED, State.OVER)
"""Of each machine."""

# The same by position: every request takes five steps.
_ROWS: Final = tuple(
    tuple(NEXT.get((state, event)) for event in Event) for state in range(max(State) + 1)
)


def draw(first: State) -> str:
    """Return the machine that *first* begins as a Mermaid diagram, for the docs."""
    machine = first // 10
    lines = ["stateDiagram-v2", f"    [*] --> {first.name}"]
    lines += [
        f"    {State(state).name} --> {after.name}: {Event(event).name}"
        for (state, event), after in NEXT.items()
        if after // 10 == machine
    ]
    last = LAST[machine]
    return "\n".join([*lines, f"    {last.name} --> [*]"])


def step(state: State, event: Event) -> State:
    """Return the state after *event*.

    Raises:
        KeyError: For an event that cannot happen in *state*.
    """
    after = _ROWS[state][event]
    if after is None:
        raise KeyError(f"{event.name} cannot happen in {state.name}")
    return after
