"""Tests that the table of responses and the cases name the same rows."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.responses import REFUSALS


def test_every_recorded_answer_has_a_case() -> None:
    folder = Path(__file__).parent
    cases = "".join(path.read_text() for path in folder.glob("test_*.py"))
    assert [row for row in REFUSALS if f'"{row}"' not in cases] == []
