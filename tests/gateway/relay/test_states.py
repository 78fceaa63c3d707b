from __future__ import annotations

from pathlib import Path

import pytest

from gateway.relay.states import LAST, NEXT, Event, State, draw, step

FIRST = (State.BUSY, State.EMPTYING)


def test_no_event_leads_from_one_machine_into_another() -> None:
    for (state, _), after in NEXT.items():
        assert state // 10 == after // 10


def test_every_state_is_reached_and_can_be_left_but_the_last_ones() -> None:
    assert set(NEXT.values()) | set(FIRST) == set(State)
    assert set(State) - {State(state) for state, _ in NEXT} == set(LAST)


def test_a_connection_can_be_lost_in_every_state() -> None:
    for state in set(State) - set(LAST):
        assert step(state, Event.LOST) is LAST[state // 10 - 1]


def test_what_cannot_happen_raises() -> None:
    with pytest.raises(KeyError):
        step(State.IDLE, Event.RETURNED)
    with pytest.raises(KeyError):
        step(State.CLOSED, Event.TAKEN)


def test_the_docs_show_this_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "connections.md").read_text("utf-8")
    for first in FIRST:
        assert f"```mermaid\n{draw(first)}\n```" in text
