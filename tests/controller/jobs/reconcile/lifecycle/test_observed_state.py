from __future__ import annotations

from dataclasses import replace

import pytest

from controller.jobs.reconcile.lifecycle.observed_state import hooks_matter
from controller.store.jobs.job_rows import JobRecord
from tests.controller.jobs.reconcile.lifecycle.records import KEPT, SUBMITTED
from tests.controller.samples import make_observed, make_observed_state


@pytest.mark.parametrize(
    ("record", "knows_hooks", "goes_on"),
    [
        (replace(SUBMITTED, reason="queued"), True, True),
        (replace(SUBMITTED, reason="queued"), False, True),
        (KEPT, True, True),
        (KEPT, False, False),
        (replace(SUBMITTED, outcome="SUCCESS"), True, True),
        (replace(SUBMITTED, outcome="SUCCESS"), False, False),
        (replace(SUBMITTED, state="SUCCESS"), True, False),
        (replace(SUBMITTED, attempt=2), True, False),
        (replace(SUBMITTED, uid="another"), True, False),
        (None, True, False),
    ],
)
def test_a_job_is_not_observed_again_if_nothing_relevant_changed(
    record: JobRecord | None, knows_hooks: bool, goes_on: bool
) -> None:
    last = make_observed("Failed")
    seen = make_observed_state(SUBMITTED, make_observed(), last=last, knows_hooks=knows_hooks)
    after = seen.after(record)
    assert (after is not None) == goes_on
    if after is not None and record is not None:
        assert after == replace(seen, record=record, last=last if record.outcome is None else None)


def test_hooks_are_relevant_while_a_job_runs_and_after_its_end_is_decided() -> None:
    assert not hooks_matter(SUBMITTED)
    assert hooks_matter(KEPT)
    assert hooks_matter(replace(SUBMITTED, outcome="FAILURE"))
