from __future__ import annotations

from controller.sessions.snapshot import DirtySet


def test_changed_jobs_precede_unchanged_ones() -> None:
    dirty_set = DirtySet()
    dirty_set.add_later(["a", "b", "c"])
    dirty_set.add(["x", "b"])
    assert len(dirty_set) == 4
    assert dirty_set.take(3) == ["x", "b", "a"]
    assert dirty_set.take(3) == ["c"]
    assert dirty_set.take(3) == []
    assert not dirty_set


def test_a_job_changed_during_processing_is_processed_again() -> None:
    dirty_set = DirtySet()
    dirty_set.add(["a", "a"])
    assert dirty_set.take(1) == ["a"]
    dirty_set.add(["a"])
    assert dirty_set.take(9) == ["a"]
