"""The tables of upstream connections and large bodies, and that the docs show them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.relay.http import large_bodies, upstream
from gateway.relay.http.large_bodies import SpliceEvent, SpliceState
from gateway.relay.http.upstream import UpstreamEvent, UpstreamState
from tests.gateway.diagrams import draw

DOCS = (Path(__file__).parents[3] / "docs" / "connections.md").read_text("utf-8")


class Machine(NamedTuple):
    """A table, its states, the first and last of them, and the event that ends any state."""

    table: Mapping[tuple[Any, Any], Any]
    states: type[IntEnum]
    first: IntEnum
    last: IntEnum
    lost: IntEnum


MACHINES = (
    Machine(
        upstream.NEXT,
        UpstreamState,
        UpstreamState.BUSY,
        UpstreamState.CLOSED,
        UpstreamEvent.LOST,
    ),
    Machine(
        large_bodies.NEXT, SpliceState, SpliceState.DRAINING, SpliceState.OVER, SpliceEvent.LOST
    ),
)
each = pytest.mark.parametrize("machine", MACHINES, ids=["upstream", "splice"])


@each
def test_every_state_is_reachable_and_only_the_last_is_final(machine: Machine) -> None:
    assert {*machine.table.values(), machine.first} == set(machine.states)
    assert {state for state, _ in machine.table} == set(machine.states) - {machine.last}


@each
def test_a_connection_can_be_lost_in_every_state(machine: Machine) -> None:
    for state in set(machine.states) - {machine.last}:
        assert machine.table[state, machine.lost] is machine.last


def test_an_impossible_transition_raises() -> None:
    with pytest.raises(KeyError):
        upstream.NEXT[UpstreamState.IDLE, UpstreamEvent.RETURNED]
    with pytest.raises(KeyError):
        upstream.NEXT[UpstreamState.CLOSED, UpstreamEvent.TAKEN]
    with pytest.raises(KeyError):
        large_bodies.NEXT[SpliceState.OVER, SpliceEvent.LOST]


@each
def test_the_docs_show_this_table(machine: Machine) -> None:
    drawn = draw(machine.table, first=machine.first, last=machine.last)
    assert f"```mermaid\n{drawn}\n```" in DOCS
