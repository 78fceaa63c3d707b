"""Revisions, history and watches, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import make_builtin_kinds
from deploy.local.cluster.apiserver.selectors import make_selector
from deploy.local.cluster.apiserver.store import HISTORY, Store
from deploy.local.cluster.apiserver.watch import Asked, follow

KIND = next(kind for kind in make_builtin_kinds() if kind.kind == "ConfigMap")


def _put(store: Store, name: str, **labels: str) -> int:
    value = {"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}}
    return store.put(KIND.key, value).revision


async def _seen(store: Store, revision: str, labels: str = "", seconds: float = 0.1) -> list[Any]:
    asked = Asked("n", make_selector(labels, ""), revision, seconds, bookmarks=False)
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


async def test_a_watch_tells_what_was_missed_and_what_comes() -> None:
    store = Store()
    since = _put(store, "a")
    _put(store, "b")
    asyncio.get_running_loop().call_later(0.02, _put, store, "c")
    assert await _seen(store, str(since)) == [("ADDED", "b"), ("ADDED", "c")]


async def test_entering_and_leaving_a_selector_are_added_and_deleted() -> None:
    store = Store()
    since = str(store.revision)
    for value in ("no", "yes", "yes", "no"):
        _put(store, "a", shown=value)
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await _seen(store, since, "shown=yes") == expected


async def test_what_was_forgotten_is_expired() -> None:
    store = Store()
    since = _put(store, "a")
    _put(store, "b")
    store.compact()
    with pytest.raises(ApiError) as caught:
        await _seen(store, str(since))
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert await _seen(store, str(store.revision)) == []


def test_history_has_an_end_and_knows_it() -> None:
    store = Store()
    since = store.revision
    for number in range(HISTORY + 1):
        _put(store, f"n{number}")
    assert store.since(KIND.key, since) is None
    assert len(store.since(KIND.key, since + 1) or []) == HISTORY


async def test_a_revision_of_the_future_is_waited_for() -> None:
    store = Store()
    asyncio.get_running_loop().call_later(0.01, _put, store, "a")
    assert await _seen(store, str(store.revision + 1000)) == []
