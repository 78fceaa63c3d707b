"""The phases of a downstream connection, and that the docs show their table."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.downstream.phases import (
    NEXT,
    ROWS,
    Event,
    OnData,
    OnFin,
    Phase,
)
from tests.gateway.diagrams import draw

DOCS = (Path(__file__).parents[4] / "docs" / "connections.md").read_text("utf-8")


def test_every_phase_is_reachable_and_only_the_last_is_final() -> None:
    assert set(NEXT.values()) == set(Phase)
    assert {phase for phase, _ in NEXT} == set(Phase) - {Phase.CLOSED}


def test_a_connection_can_be_lost_in_every_phase() -> None:
    for phase in set(Phase) - {Phase.CLOSED}:
        assert NEXT[phase, Event.LOST] is Phase.CLOSED


def test_a_fin_can_end_every_phase_that_it_cancels() -> None:
    for phase, row in ROWS.items():
        if row.on_fin is OnFin.ABORT:
            assert NEXT[phase, Event.ENDED] is Phase.LINGERING


def test_a_body_is_read_only_after_its_head_was_forwarded() -> None:
    taking = {phase for phase, row in ROWS.items() if row.on_data is OnData.FORWARD}
    assert taking == {Phase.UPLOADING, Phase.EARLY_RESPONSE}


def test_an_impossible_transition_raises() -> None:
    with pytest.raises(KeyError):
        NEXT[Phase.HEAD, Event.COMPLETED]
    with pytest.raises(KeyError):
        NEXT[Phase.LINGERING, Event.COMPLETED]


def rows() -> str:
    """Return what each phase does on bytes, a FIN and its deadline, as a Markdown table."""
    lines = ["| phase | bytes | a FIN | the deadline |", "|---|---|---|---|"]
    lines += [
        f"| `{phase.name}` | {row.on_data.name.lower().replace('_', ' ')} "
        f"| {row.on_fin.name.lower()} "
        f"| {row.on_deadline.name.lower().replace('_', ' ')} |"
        for phase, row in ROWS.items()
    ]
    return "\n".join(lines)


def test_the_docs_show_these_tables() -> None:
    drawn = draw(NEXT, first=Phase.HEAD, last=Phase.CLOSED)
    assert f"```mermaid\n{drawn}\n```" in DOCS
    assert rows() in DOCS
