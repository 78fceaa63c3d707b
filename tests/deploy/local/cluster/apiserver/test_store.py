"""Tests revisions, history and watches of the store, without a server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import make_builtin_kinds
from deploy.local.cluster.apiserver.selectors import equal_labels, make_selector
from deploy.local.cluster.apiserver.store import HISTORY, Store
from deploy.local.cluster.apiserver.watch import Asked, follow

KIND = next(kind for kind in make_builtin_kinds() if kind.kind == "ConfigMap")


def _put(store: Store, name: str, **labels: str) -> int:
    value = {"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}}
    return store.put(KIND.key, value).revision


async def _seen(store: Store, revision: int, labels: str = "") -> list[Any]:
    asked = Asked(
        "n", make_selector(labels, ""), revision, initial=False, seconds=0.1, bookmarks=False
    )
    return [
        (change, stored.value["metadata"]["name"])
        async for change, stored in follow(store, KIND, asked)
    ]


def test_a_write_raises_the_revision_and_leaves_the_old_state_alone() -> None:
    store = Store()
    first = _put(store, "a", x="1")
    before = store.get(KIND.key, "n", "a")
    assert before is not None
    assert _put(store, "a", x="2") == first + 1
    assert before.value["metadata"]["labels"] == {"x": "1"}
    assert before.copy() == before.value
    assert before.copy() is not before.value


async def test_a_watch_sends_missed_and_later_events() -> None:
    store = Store()
    since = _put(store, "a")
    _put(store, "b")
    asyncio.get_running_loop().call_later(0.02, _put, store, "c")
    assert await _seen(store, since) == [("ADDED", "b"), ("ADDED", "c")]


async def test_no_bookmark_precedes_an_unsent_change() -> None:
    store, loop = Store(), asyncio.get_running_loop()
    change = _put(store, "a")

    def change_late() -> None:
        # The watch times out and an object changes within one turn of the loop.
        time.sleep(0.05)
        loop.call_soon(_put, store, "b")

    loop.call_later(0.04, change_late)
    asked = Asked("n", make_selector("", ""), change, initial=False, seconds=0.05, bookmarks=True)
    async for _, stored in follow(store, KIND, asked):
        change = stored.revision
    assert store.get(KIND.key, "n", "b") is not None
    missed = store.since(KIND.key, change)
    assert missed is not None
    assert [event.now.place for event in missed] == [("n", "b")]


async def test_entering_and_leaving_a_selector_are_added_and_deleted() -> None:
    store = Store()
    since = store.revision
    for value in ("no", "yes", "yes", "no"):
        _put(store, "a", shown=value)
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await _seen(store, since, "shown=yes") == expected


def test_a_list_at_a_revision_shows_that_state() -> None:
    store = Store()
    for name in "abc":
        _put(store, name, kept="yes")
    then = store.revision
    _put(store, "b", kept="no")
    _put(store, "d", kept="yes")
    gone = store.get(KIND.key, "n", "a")
    assert gone is not None
    store.remove(KIND.key, gone)

    def names(revision: int) -> list[str] | None:
        found = store.labelled_at(KIND.key, "n", {"kept": "yes"}, revision)
        return None if found is None else [item.value["metadata"]["name"] for item in found]

    assert names(then) == ["a", "b", "c"]
    assert names(store.revision) == ["c", "d"]
    store.compact()
    assert names(then) is None


async def test_a_compacted_revision_is_expired() -> None:
    store = Store()
    since = _put(store, "a")
    _put(store, "b")
    store.compact()
    with pytest.raises(ApiError) as caught:
        await _seen(store, since)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert await _seen(store, store.revision) == []


def test_the_history_is_bounded_and_knows_its_start() -> None:
    store = Store()
    since = store.revision
    for number in range(HISTORY + 1):
        _put(store, f"n{number}")
    assert store.since(KIND.key, since) is None
    assert len(store.since(KIND.key, since + 1) or []) == HISTORY


async def test_a_revision_of_the_future_is_waited_for() -> None:
    store = Store()
    asyncio.get_running_loop().call_later(0.01, _put, store, "a")
    assert await _seen(store, store.revision + 1000) == []


def test_the_label_index_returns_exactly_the_labelled_objects() -> None:
    store = Store()

    def named(namespace: str = "n", **labels: str) -> list[str]:
        found = store.labelled(KIND.key, namespace, labels)
        return [item.value["metadata"]["name"] for item in found]

    _put(store, "b", app="x", tier="1")
    _put(store, "a", app="x")
    assert named(app="x") == ["a", "b"] == named("", app="x")
    assert named(app="x", tier="1") == ["b"]
    assert named(app="y") == [] == named("other", app="x")
    _put(store, "a", app="y")
    assert (named(app="x"), named(app="y"), named()) == (["b"], ["a"], ["a", "b"])
    there = store.get(KIND.key, "n", "b")
    assert there is not None
    store.remove(KIND.key, there)
    assert (named(app="x"), named(tier="1")) == ([], [])


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("a=b", {"a": "b"}),
        ("a==b,c=d", {"a": "b", "c": "d"}),
        ("a!=b,c,!d,e in (f)", {}),
        ("a=", {}),
    ],
)
def test_only_equality_selectors_use_the_index(selector: str, labels: dict[str, str]) -> None:
    assert equal_labels(selector) == labels
