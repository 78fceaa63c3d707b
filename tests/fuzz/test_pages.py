"""Tests that the pages keep their promises for damaged input, in a real Chromium."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzz.corpus import read_corpus
from tests.fuzz.mutation import Fuzzer
from tests.fuzz.pages import PAGE_TARGETS, Pages, page_targets

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(600)]

COUNTS = dict(zip(PAGE_TARGETS, (15, 10, 5, 5), strict=True))
"""In `make test`; `make fuzz` goes on for as long as it is told to."""


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    with Pages() as running:
        yield running


@pytest.mark.parametrize("name", PAGE_TARGETS)
def test_properties_of_the_pages_hold_for_damaged_input(pages: Pages, name: str) -> None:
    (target,) = [one for one in page_targets(pages) if one.name == name]
    for case in read_corpus(name):
        target.check(case)
    assert Fuzzer(target, random.Random(1)).run(COUNTS[name]) is None
