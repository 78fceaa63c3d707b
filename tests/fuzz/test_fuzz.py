"""Tests that the promises hold for the corpus and for damaged input, and the fuzzer itself."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.corpus import read_corpus
from tests.fuzz.mutation import Fuzzer, Target, cut
from tests.fuzz.targets import TARGETS

COUNT = 400


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_once_broke_a_promise_does_so_no_more(target: Target) -> None:
    for case in read_corpus(target.name):
        target.check(case)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_promises_hold_for_damaged_input(target: Target) -> None:
    assert Fuzzer(target, random.Random(1)).run(COUNT) is None


def test_a_broken_promise_is_found_and_made_small() -> None:
    def check(data: bytes) -> bool:
        assert b"\r\r" not in data
        return b"\r" in data

    target = Target(name="x", check=check, seeds=(b"hello\r\nworld",), words=(b"\r",))
    crash = Fuzzer(target, random.Random(1)).run(10_000)
    assert crash is not None
    assert crash.data == b"\r\r"


def test_pieces_make_the_whole_again_and_never_change() -> None:
    for size in (0, 1, 2, 50):
        data = bytes(range(size))
        assert b"".join(cut(data)) == data
        assert cut(data) == cut(data)
