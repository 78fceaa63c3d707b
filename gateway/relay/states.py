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
    """Upstream first, then large bodies."""

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

    SWITCHED = 0
    """The transport was given to a tunnel, a bridge or a page."""
    LOST = 1
    """The transport is closed, by whomever."""
    TAKEN = 2
    """A request took the connection out of the pool."""
    RETURNED = 3
    """Its answer was complete, and nothing speaks against another one."""
    EMPTIED = 4
    """The sink's transport has nothing more to write."""
    BLOCKED = 5
    """The sink did not take all."""
    FREED = 6
    """It has taken the rest."""
    PASSED = 7
    """The sink has taken the body's last byte."""
    HANDED_BACK = 8
    """There is no pipe, or the source has ended: the transports go on."""


S, E = State, Event

NEXT: Final[Mapping[tuple[int, int], State]] = MappingProxyType(
    {
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


LAST: Final = (State.CLOSED, State.OVER)
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
    last = LAST[machine - 1]
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
