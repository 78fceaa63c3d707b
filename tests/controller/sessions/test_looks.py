from __future__ import annotations

from controller.sessions.looks import Looks


def test_what_changed_is_looked_at_before_what_did_not() -> None:
    looks = Looks()
    looks.add_later(["a", "b", "c"])
    looks.add(["x", "b"])
    assert len(looks) == 4
    assert looks.take(3) == ["x", "b", "a"]
    assert looks.take(3) == ["c"]
    assert looks.take(3) == []
    assert not looks


def test_what_changes_again_after_it_was_taken_is_looked_at_again() -> None:
    looks = Looks()
    looks.add(["a", "a"])
    assert looks.take(1) == ["a"]
    looks.add(["a"])
    assert looks.take(9) == ["a"]
