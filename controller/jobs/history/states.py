"""A job's states as a table: what the orchestrator is told, and what leads from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal


class State(StrEnum):
    """What the orchestrator is told."""

    IN_QUEUE = "IN_QUEUE"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CANCELING = "CANCELING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    EXPIRED = "EXPIRED"


class Happening(StrEnum):
    """What may happen to a job."""

    WAITS = "waits"
    STARTED = "started"
    SUSPENDED = "suspended"
    ASKED_TO_END = "asked to end"
    ENDED_WELL = "ended well"
    ENDED_BADLY = "ended badly"
    RAN_OUT = "time over"


TRANSITIONS: Final[Mapping[tuple[State, Happening], State]] = MappingProxyType(
    {
        (State.IN_QUEUE, Happening.WAITS): State.IN_QUEUE,
        (State.IN_QUEUE, Happening.STARTED): State.RUNNING,
        (State.IN_QUEUE, Happening.SUSPENDED): State.SUSPENDED,
        (State.IN_QUEUE, Happening.ASKED_TO_END): State.CANCELING,
        # A job can end between two looks at it.
        (State.IN_QUEUE, Happening.ENDED_WELL): State.SUCCESS,
        (State.IN_QUEUE, Happening.ENDED_BADLY): State.FAILURE,
        # Its time goes on from its first start, also while another attempt waits.
        (State.IN_QUEUE, Happening.RAN_OUT): State.EXPIRED,
        # Volcano starts a job over, or has lost too many of its pods to call it running.
        (State.RUNNING, Happening.WAITS): State.IN_QUEUE,
        (State.RUNNING, Happening.STARTED): State.RUNNING,
        (State.RUNNING, Happening.SUSPENDED): State.SUSPENDED,
        (State.RUNNING, Happening.ASKED_TO_END): State.CANCELING,
        (State.RUNNING, Happening.ENDED_WELL): State.SUCCESS,
        (State.RUNNING, Happening.ENDED_BADLY): State.FAILURE,
        (State.RUNNING, Happening.RAN_OUT): State.EXPIRED,
        # It was resumed, and waits for its turn like any other.
        (State.SUSPENDED, Happening.WAITS): State.IN_QUEUE,
        (State.SUSPENDED, Happening.STARTED): State.RUNNING,
        (State.SUSPENDED, Happening.SUSPENDED): State.SUSPENDED,
        (State.SUSPENDED, Happening.ASKED_TO_END): State.CANCELING,
        (State.SUSPENDED, Happening.ENDED_WELL): State.SUCCESS,
        (State.SUSPENDED, Happening.ENDED_BADLY): State.FAILURE,
        (State.SUSPENDED, Happening.RAN_OUT): State.EXPIRED,
        # What it does until it is gone no longer matters.
        (State.CANCELING, Happening.WAITS): State.CANCELING,
        (State.CANCELING, Happening.STARTED): State.CANCELING,
        (State.CANCELING, Happening.SUSPENDED): State.CANCELING,
        (State.CANCELING, Happening.ASKED_TO_END): State.CANCELING,
        (State.CANCELING, Happening.ENDED_WELL): State.SUCCESS,
        (State.CANCELING, Happening.ENDED_BADLY): State.FAILURE,
        (State.CANCELING, Happening.RAN_OUT): State.EXPIRED,
    }
)
"""Everything else is no transition: a final state has none."""

Outcome = Literal[State.SUCCESS, State.FAILURE, State.EXPIRED]
HOW_IT_ENDED: Final[Mapping[str, Happening]] = MappingProxyType(
    {
        State.SUCCESS.value: Happening.ENDED_WELL,
        State.FAILURE.value: Happening.ENDED_BADLY,
        State.EXPIRED.value: Happening.RAN_OUT,
    }
)


def next_state(state: str, happening: Happening) -> str:
    """Return the state after *happening*; one that is final, or not known here, stays."""
    try:
        return TRANSITIONS[State(state), happening]
    except (KeyError, ValueError):
        return state
