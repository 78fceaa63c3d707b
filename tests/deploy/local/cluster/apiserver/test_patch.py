"""Tests merge patch, JSON patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.patch import JSON, MERGE, patched
from deploy.local.cluster.apiserver.strategic import STRATEGIC

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": None, "d": 2}}, {"a": {"b": 1, "d": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "text"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_merge_patch_follows_rfc_7386(before: Any, patch: Any, after: Any) -> None:
    assert patched(MERGE, before, patch) == after


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        # Real servers do this, in contrast to the RFC.
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 9}], {"a": 1, "b": 9}),
    ],
)
def test_json_patch_follows_rfc_6902(before: Any, patch: Any, after: Any) -> None:
    assert patched(JSON, before, patch) == after


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none/x", "value": 1},
        {"op": "leap", "path": "/a"},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_apply_is_422(operation: Any) -> None:
    with pytest.raises(ApiError) as caught:
        patched(JSON, {"a": 1, "list": [1]}, [operation])
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        (JSON, {"a": 1}, 400),
        (JSON, [{"op": "add"}], 400),
        (MERGE, [], 400),
        ("application/apply-patch+yaml", {}, 415),
        ("application/strategic-merge-patch+json", {}, 415),
    ],
)
def test_a_malformed_patch_is_refused(kind: str, patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        patched(kind, {"a": 1}, patch)
    assert caught.value.code == code


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent(value: Any, patch: Any) -> None:
    once = patched(MERGE, value, patch)
    assert patched(MERGE, once, patch) == once


@given(OBJECTS)
def test_the_original_is_never_touched(value: Any) -> None:
    copy = patched(MERGE, value, {})
    patched(JSON, value, [{"op": "add", "path": "/new", "value": 1}])
    assert value == copy


CONTAINERS = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": {"b": 1}}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (
            CONTAINERS,
            {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]},
            {
                "containers": [
                    {"name": "a", "image": "1"},
                    {"name": "b", "image": "2"},
                    {"name": "c"},
                ]
            },
        ),
        (
            CONTAINERS,
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b", "image": "1"}]},
        ),
        (
            CONTAINERS,
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
        ),
        (
            CONTAINERS,
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []},
            {"containers": CONTAINERS["containers"][::-1]},
        ),
        (
            {"ports": [{"port": 80, "name": "x"}]},
            {"ports": [{"port": 80, "targetPort": 1}, {"port": 81}]},
            {"ports": [{"port": 80, "name": "x", "targetPort": 1}, {"port": 81}]},
        ),
        (
            {"ports": [{"containerPort": 1}]},
            {"ports": [{"containerPort": 1, "name": "x"}]},
            {"ports": [{"containerPort": 1, "name": "x"}]},
        ),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
        ),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c"], "c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 1}}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}),
    ],
)
def test_strategic_merge_patch_merges_lists_by_key(before: Any, patch: Any, after: Any) -> None:
    assert patched(STRATEGIC, before, patch, named_lists=True) == after


def test_strategic_merge_patch_needs_merge_keys_of_a_built_in_kind() -> None:
    with pytest.raises(ApiError) as nameless:
        patched(STRATEGIC, CONTAINERS, {"containers": [{"image": "2"}]}, named_lists=True)
    assert nameless.value.code == 400
    with pytest.raises(ApiError) as unknown:
        patched(STRATEGIC, {}, {})
    assert unknown.value.code == 415
