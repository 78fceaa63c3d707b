"""Tests the dictionary with a limit."""

from __future__ import annotations

from shared.bounded import BoundedDict


def test_a_new_key_evicts_the_oldest_one() -> None:
    some: BoundedDict[str, int] = BoundedDict(2)
    some["a"], some["b"], some["c"] = 1, 2, 3
    assert some == {"b": 2, "c": 3}


def test_a_known_key_evicts_nothing_and_keeps_its_age() -> None:
    some: BoundedDict[str, int] = BoundedDict(2)
    some["a"], some["b"], some["a"] = 1, 2, 3
    assert some == {"a": 3, "b": 2}
    some["c"] = 4
    assert some == {"b": 2, "c": 4}


def test_a_key_that_was_removed_first_is_the_newest() -> None:
    some: BoundedDict[str, int] = BoundedDict(2)
    some["a"], some["b"] = 1, 2
    some["a"] = some.pop("a")
    some["c"] = 3
    assert some == {"a": 1, "c": 3}
