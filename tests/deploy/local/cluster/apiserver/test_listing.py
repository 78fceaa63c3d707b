"""Tests the query parameters of lists and watches, and the pages of a list."""

from __future__ import annotations

import pytest

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.listing import Page, check_options
from deploy.local.cluster.apiserver.options import delete_wish, write_options
from deploy.local.cluster.apiserver.store import Store, Stored


def _stored(*names: str) -> list[Stored]:
    store = Store()
    return [
        store.put(("", "things"), {"kind": "T", "apiVersion": "v1", "metadata": {"name": name}})
        for name in names
    ]


def test_every_page_but_the_last_has_a_continue_token() -> None:
    items = _stored("a", "b", "c")
    first, metadata = Page.of(7).cut(items, "2")
    assert [item.place[1] for item in first] == ["a", "b"]
    assert metadata["remainingItemCount"] == 1
    page = Page.asked({"continue": metadata["continue"]}, "", current=9)
    assert page.rv == 7
    rest, metadata = page.cut(items, "2")
    assert [item.place[1] for item in rest] == ["c"]
    assert metadata == {"resourceVersion": "7"}


@pytest.mark.parametrize("limit", ["", "0", "-1"])
def test_without_limit_a_list_is_one_page(limit: str) -> None:
    page, metadata = Page.of(7).cut(_stored("a", "b"), limit)
    assert len(page) == 2
    assert "continue" not in metadata


def test_an_expired_continue_token_continues_with_the_current_state() -> None:
    error = Page.of(2, ("n", "a")).expired()
    assert (error.code, error.status["reason"]) == (410, "Expired")
    page = Page.asked({"continue": error.status["metadata"]["continue"]}, "n", current=50)
    assert (page.rv, page.place) == (50, ("n", "a"))


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "abc"}, 400),
        ({"continue": "%%%"}, 400),
        ({"resourceVersion": "1000"}, 504),
    ],
)
def test_malformed_versions_and_tokens_are_refused(query: dict[str, str], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        Page.asked(query, "n", current=50)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("query", "watch", "code"),
    [
        ({"limit": "x"}, False, 400),
        ({"resourceVersionMatch": "Exact"}, False, 422),
        ({"resourceVersionMatch": "Nearly", "resourceVersion": "5"}, False, 422),
        ({"sendInitialEvents": "true"}, False, 422),
        ({"sendInitialEvents": "true"}, True, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "5"}, True, 422),
    ],
)
def test_conflicting_list_options_are_refused(
    query: dict[str, str], watch: bool, code: int
) -> None:
    with pytest.raises(ApiError) as caught:
        check_options(query, watch=watch)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"propagationPolicy": "Nope"}, 422),
        ({"propagationPolicy": "Foreground", "orphanDependents": True}, 422),
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
        ({"gracePeriodSeconds": "x"}, 400),
        ({"dryRun": ["Nope"]}, 422),
        ({"dryRun": "All"}, 422),
    ],
)
def test_invalid_delete_options_are_refused(body: dict[str, object], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        delete_wish({}, body)
    assert caught.value.code == code


def test_the_body_of_a_delete_overrides_its_query() -> None:
    query = {"dryRun": "All", "gracePeriodSeconds": "5", "propagationPolicy": "Orphan"}
    wish = delete_wish(query, {"gracePeriodSeconds": 1, "kind": "DeleteOptions"})
    assert (wish["dryRun"], wish["gracePeriodSeconds"]) == (["All"], 1)
    assert wish["propagationPolicy"] == "Orphan"


def test_unknown_field_validation_modes_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        write_options({"fieldValidation": "Bad"}, "CreateOptions")
    assert caught.value.status["details"]["kind"] == "CreateOptions"
    assert write_options({"fieldValidation": "Strict", "dryRun": "All"}, "CreateOptions").strict
