from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.states import TRANSITIONS, Happening, State, next_state
from controller.store.jobs.job_rows import FINAL_STATES


@given(st.sampled_from(State), st.sampled_from(Happening))
def test_a_final_state_is_never_left(state: State, happening: Happening) -> None:
    if state.value in FINAL_STATES:
        assert next_state(state, happening) == state


@given(st.sampled_from(Happening))
def test_a_state_of_a_later_version_is_left_alone(happening: Happening) -> None:
    assert next_state("HIBERNATING", happening) == "HIBERNATING"


def test_every_state_that_is_not_final_knows_every_happening() -> None:
    living = [state for state in State if state.value not in FINAL_STATES]
    assert set(TRANSITIONS) == {(state, one) for state in living for one in Happening}
