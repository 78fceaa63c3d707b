from __future__ import annotations

from pathlib import Path

import pytest

from gateway.relay.states import NEXT, Event, State, draw, step

DOWNSTREAM = {s for s in State if s < State.IDLE}


def test_downstream_and_upstream_are_two_machines() -> None:
    for (state, _), after in NEXT.items():
        assert (State(state) in DOWNSTREAM) == (after in DOWNSTREAM)


def test_every_state_is_reached_and_can_be_left_but_the_last_ones() -> None:
    reached = set(NEXT.values()) | {State.HEAD, State.BUSY}
    assert reached == set(State)
    assert set(State) - {State(state) for state, _ in NEXT} == {State.GONE, State.CLOSED}


def test_a_connection_can_be_lost_in_every_state() -> None:
    for state in set(State) - {State.GONE, State.CLOSED}:
        assert step(state, Event.LOST) in (State.GONE, State.CLOSED)


def test_what_cannot_happen_raises() -> None:
    with pytest.raises(KeyError):
        step(State.HEAD, Event.ANSWERED)
    with pytest.raises(KeyError):
        step(State.LINGERING, Event.ANSWERED)


def test_the_docs_show_this_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "connections.md").read_text("utf-8")
    for first in (State.HEAD, State.BUSY):
        assert f"```mermaid\n{draw(first)}\n```" in text
