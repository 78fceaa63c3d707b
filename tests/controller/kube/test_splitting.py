"""Tests the splitting of a list into objects while it arrives, for any cut of the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube import decoding
from controller.kube.decoding import ListSplitter
from controller.kube.errors import Unavailable

# Strings that resemble the start and the end of the searched member.
TEXT = st.text(max_size=6) | st.sampled_from(
    ['"items":[', "items", '{,"items":[', "\\", '\\"', "}", "]}", "[{", "{}", "é", "\n"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.lists(st.dictionaries(TEXT, JSON, min_size=1, max_size=3), max_size=5)


def split(text: bytes, size: int) -> tuple[list[Any], Any]:
    splitter = ListSplitter()
    found: list[Any] = []
    for start in range(0, len(text), size):
        found += [json.loads(one) for one in splitter.feed(text[start : start + size])]
    return found, json.loads(splitter.end())


@given(
    OBJECTS,
    st.dictionaries(TEXT.filter(lambda key: key != "items"), JSON, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.integers(1, 40),
)
def test_list_items_are_split_at_any_byte_boundaries(
    objects: Any, around: dict[str, Any], items_first: bool, indent: int | None, size: int
) -> None:
    items = {"items": objects}
    whole = items | around if items_first else around | items
    for plain in (True, False):
        text = json.dumps(whole, indent=indent, ensure_ascii=plain).encode()
        assert split(text, size) == (objects, around | {"items": []})


@pytest.mark.parametrize(
    "text",
    [
        b'{"items":["a"]}',
        b'{"items":[{"a":1},null]}',
        b'{"items":[1,{"a":1}]}',
        b'{"items":[[{"a":1}]]} ]',
    ],
)
def test_malformed_lists_are_unavailable_or_empty(text: bytes) -> None:
    try:
        found, _ = split(text, 1)
    except (Unavailable, ValueError):
        return
    assert not all(isinstance(one, dict) for one in found)


@pytest.mark.parametrize("text", [b'{"a":"', b'{"items":[{"a":"', b'{"items":[{"a":[1,', b"["])
def test_an_endless_object_is_aborted(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "LONGEST_OBJECT", 1000)
    splitter = ListSplitter()
    splitter.feed(text)
    for _ in range(90):
        splitter.feed(b"1,        ")
    with pytest.raises(Unavailable):
        splitter.feed(b"1,        " * 20)


def test_a_map_named_items_is_not_split() -> None:
    text = b'{"items":{"a":{"b":1}},"spec":{"items":[{"c":2}]}}'
    found, rest = split(text, 3)
    assert (found, rest) == ([], json.loads(text))
