from __future__ import annotations

import pytest

from controller.jobs.history.job_record import TRANSITIONS, JobEvent, State, next_state
from controller.store.jobs.job_rows import FINAL_STATES


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_a_final_state_is_never_left(state: str) -> None:
    assert {next_state(state, event) for event in JobEvent} == {state}


@pytest.mark.parametrize("event", JobEvent)
def test_a_state_of_a_later_version_is_kept(event: JobEvent) -> None:
    assert next_state("HIBERNATING", event) == "HIBERNATING"


def test_every_non_final_state_handles_every_event() -> None:
    living = [state for state in State if state.value not in FINAL_STATES]
    assert set(TRANSITIONS) == {(state, one) for state in living for one in JobEvent}
