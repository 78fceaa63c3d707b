"""Tests that the promises hold for the corpus and for damaged input, and the fuzzer itself."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.corpus import read_corpus
from tests.fuzz.mutation import Fuzzer, Target, cut
from tests.fuzz.targets import TARGETS

COUNT = 400


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_recorded_counterexamples_no_longer_fail(target: Target) -> None:
    for case in read_corpus(target.name):
        target.check(case)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_properties_hold_for_damaged_input(target: Target) -> None:
    assert Fuzzer(target, random.Random(1)).run(COUNT) is None


def test_a_violated_property_is_found_and_minimised() -> None:
    def check(data: bytes) -> bool:
        assert b"\r\r" not in data
        return b"\r" in data

    target = Target(name="x", check=check, seeds=(b"hello\r\nworld",), words=(b"\r",))
    crash = Fuzzer(target, random.Random(1)).run(10_000)
    assert crash is not None
    assert crash.data == b"\r\r"


def test_pieces_join_to_the_whole_input() -> None:
    for size in (0, 1, 2, 50):
        data = bytes(range(size))
        assert b"".join(cut(data)) == data
        assert cut(data) == cut(data)
