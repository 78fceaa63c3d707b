"""Merge patch and JSON patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.patch import JSON, MERGE, patched

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
def test_merge_patch_as_rfc_7386_has_it(before: Any, patch: Any, after: Any) -> None:
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
    ],
)
def test_json_patch_as_rfc_6902_has_it(before: Any, patch: Any, after: Any) -> None:
    assert patched(JSON, before, patch) == after


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
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
        (JSON, [{"op": "leap", "path": "/a"}], 400),
        (JSON, [{"op": "add"}], 400),
        (MERGE, [], 400),
        ("application/apply-patch+yaml", {}, 415),
        ("application/strategic-merge-patch+json", {}, 415),
    ],
)
def test_what_is_no_such_patch_is_refused(kind: str, patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        patched(kind, {"a": 1}, patch)
    assert caught.value.code == code


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(value: Any, patch: Any) -> None:
    once = patched(MERGE, value, patch)
    assert patched(MERGE, once, patch) == once


@given(OBJECTS)
def test_the_original_is_never_touched(value: Any) -> None:
    copy = patched(MERGE, value, {})
    patched(JSON, value, [{"op": "add", "path": "/new", "value": 1}])
    assert value == copy
