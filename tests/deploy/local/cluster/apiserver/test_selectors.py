"""Tests label and field selectors."""

from __future__ import annotations

import pytest

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.selectors import make_selector

POD = {
    "metadata": {"name": "a", "namespace": "n", "labels": {"app.example.com/x": "1", "empty": ""}},
    "status": {"phase": "Running"},
    "spec": {"nodeName": "node"},
}


@pytest.mark.parametrize(
    ("labels", "selected"),
    [
        ("", True),
        ("app.example.com/x=1", True),
        ("app.example.com/x==1,empty=", True),
        ("app.example.com/x!=1", False),
        ("none!=1", True),
        ("none=1", False),
        ("none", False),
        ("!none", True),
        ("! empty", False),
        ("empty", True),
        ("app.example.com/x in (1,2)", True),
        ("app.example.com/x in (2)", False),
        ("app.example.com/x notin (2), empty", True),
        ("none notin (1)", True),
        ("none in (1)", False),
    ],
)
def test_label_selectors_are_parsed_and_matched(labels: str, selected: bool) -> None:
    assert make_selector(labels, "")(POD) is selected


@pytest.mark.parametrize(
    ("fields", "selected"),
    [
        ("metadata.name=a", True),
        ("metadata.name=a,status.phase!=Failed", True),
        ("spec.nodeName==other", False),
        ("spec.nodeName!=", True),
    ],
)
def test_field_selectors_are_parsed_and_matched(fields: str, selected: bool) -> None:
    assert make_selector("", fields)(POD) is selected


@pytest.mark.parametrize(
    ("labels", "fields"),
    [("a in b", ""), ("a=b=c", ""), (",", ""), ("a,,b", ""), ("", "spec.image=x"), ("", "name")],
)
def test_a_malformed_selector_is_a_bad_request(labels: str, fields: str) -> None:
    with pytest.raises(ApiError) as caught:
        make_selector(labels, fields)
    assert caught.value.code == 400
