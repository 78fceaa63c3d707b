"""The table of a downstream connection, and that the docs show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.downstream.phases import (
    NEXT,
    ROWS,
    Event,
    Left,
    Phase,
    Takes,
    draw,
    draw_rows,
    step,
)

DOCS = (Path(__file__).parents[4] / "docs" / "connections.md").read_text("utf-8")


def test_every_phase_is_reached_and_can_be_left_but_the_last() -> None:
    assert set(NEXT.values()) == set(Phase)
    assert {phase for phase, _ in NEXT} == set(Phase) - {Phase.GONE}


def test_a_connection_can_be_lost_in_every_phase() -> None:
    for phase in set(Phase) - {Phase.GONE}:
        assert step(phase, Event.LOST) is Phase.GONE


def test_whatever_a_fin_drops_can_end_there_and_then() -> None:
    for phase, row in ROWS.items():
        if row.left is Left.DROPS:
            assert step(phase, Event.ENDED) is Phase.LINGERING


def test_a_body_is_taken_only_where_an_app_has_its_head() -> None:
    taking = {phase for phase, row in ROWS.items() if row.takes is Takes.BODY}
    assert taking == {Phase.UPLOADING, Phase.BOTH}


def test_what_cannot_happen_raises() -> None:
    with pytest.raises(KeyError):
        step(Phase.HEAD, Event.ANSWERED)
    with pytest.raises(KeyError):
        step(Phase.LINGERING, Event.ANSWERED)


def test_the_docs_show_these_tables() -> None:
    assert f"```mermaid\n{draw()}\n```" in DOCS
    assert draw_rows() in DOCS
