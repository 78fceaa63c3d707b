"""Tests decoding of the API server's JSON: null means absent, and a non-object is an error."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube.decoding import Part, decode_object, decode_page
from controller.kube.errors import Unavailable
from controller.kube.kinds import COMMANDS, CONFIG_MAPS, PODS, Kind
from controller.kube.watch import Changed, Listed, watch
from controller.volcano.parsing import (
    read_job,
    read_pod,
    read_service,
)
from tests.controller.kube.api_server import Script, says, serving, streams

EMPTY = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": None}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def has_null_member(value: Any) -> bool:
    if isinstance(value, dict):
        return None in value.values() or any(has_null_member(one) for one in value.values())
    return isinstance(value, list) and any(has_null_member(one) for one in value)


@given(st.dictionaries(st.text(max_size=8), JSON))
def test_null_members_are_removed_and_all_others_kept(sent: Any) -> None:
    found = decode_object(json.dumps(sent).encode())
    assert not has_null_member(found)
    assert set(found) == {name for name, value in sent.items() if value is not None}
    if not has_null_member(sent):
        assert found == sent


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"7", b'{"a":', b"<html>", b"\xff"])
def test_a_body_that_is_no_object_is_unavailable(text: bytes) -> None:
    with pytest.raises(Unavailable):
        decode_object(text)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deeply_nested_json_does_not_crash(depth: int) -> None:
    text = b'{"a":' * depth + b"null" + b"}" * depth
    try:
        decode_object(text)
    except Unavailable:
        assert depth > 100


@pytest.mark.parametrize(
    "response",
    [
        EMPTY | {"metadata": {"resourceVersion": "7"}},
        EMPTY | {"metadata": {"resourceVersion": "7", "continue": "", "remainingItemCount": None}},
        EMPTY | {"metadata": {"resourceVersion": "7", "continue": None}},
        {"metadata": {"resourceVersion": "7"}},
        {"metadata": {"resourceVersion": "7"}, "items": []},
    ],
)
def test_a_list_without_items_is_empty(response: dict[str, Any]) -> None:
    assert decode_page(json.dumps(response).encode()) == ([], "7", "")


@pytest.mark.parametrize(
    "response",
    [
        {"items": {}, "metadata": {"resourceVersion": "7"}},
        {"items": [], "metadata": []},
        {"items": ["a"], "metadata": {"resourceVersion": "7"}},
        {"items": [{"spec": {}}], "metadata": {"resourceVersion": "7"}},
        {"items": [None], "metadata": {"resourceVersion": "7"}},
        [],
    ],
)
async def test_a_body_that_is_no_list_is_unavailable(tmp_path: Path, response: Any) -> None:
    async with serving(Script(says(response)), tmp_path) as kube:
        with pytest.raises(Unavailable):
            await kube.list(PODS)


@pytest.mark.parametrize("kind", [CONFIG_MAPS, COMMANDS, PODS])
async def test_every_list_call_reads_null_as_empty(tmp_path: Path, kind: Kind) -> None:
    response = EMPTY | {"metadata": {"resourceVersion": "7"}}
    async with serving(Script(says(response)), tmp_path) as kube:
        assert [page async for page in kube.metadata(kind, labels="a=b")] == []
        assert await kube.list(kind, "ns", fields="a=b") == []
        assert [part async for part in kube.parts(kind)] == [Part([], is_last=True, version="7")]


async def test_a_watch_reads_null_as_absent(tmp_path: Path) -> None:
    pod = {
        "metadata": {
            "name": "a",
            "resourceVersion": "8",
            "deletionTimestamp": None,
            "labels": None,
        },
        "status": {"conditions": None, "containerStatuses": None},
    }
    script = Script(says(EMPTY | {"metadata": {"resourceVersion": "7"}}), streams(("ADDED", pod)))
    async with serving(script, tmp_path) as kube, aclosing(watch(kube, PODS)) as events:
        assert await anext(events) == Listed(())
        changed = await anext(events)
    assert isinstance(changed, Changed)
    assert changed.object == {"metadata": {"name": "a", "resourceVersion": "8"}, "status": {}}
    assert not read_pod(changed.object).deleting


@pytest.mark.parametrize("event", [b"null\n", b"[]\n", b'{"type":"ADDED","object":null}\n'])
async def test_a_malformed_event_restarts_the_stream(tmp_path: Path, event: bytes) -> None:
    pod = {"metadata": {"name": "a", "resourceVersion": "8"}}
    listed = says({"items": None, "metadata": {"resourceVersion": "7"}})
    script = Script(listed, streams(event), streams(("ADDED", pod)))
    async with serving(script, tmp_path) as kube, aclosing(watch(kube, PODS)) as events:
        assert await anext(events) == Listed(())
        assert await anext(events) == Changed(pod)


async def test_an_error_without_message_is_attributed_to_the_server(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "a", "resourceVersion": "8"}}
    listed = says({"items": None, "metadata": {"resourceVersion": "7"}})
    wordless = streams(b'{"type":"ERROR","object":null}\n')
    script = Script(listed, wordless, streams(("ADDED", pod)))
    reported: list[Any] = []
    async with (
        serving(script, tmp_path) as kube,
        aclosing(watch(kube, PODS, report=reported.append)) as events,
    ):
        assert await anext(events) == Listed(())
        assert await anext(events) == Changed(pod)
    assert any(isinstance(one, Unavailable) for one in reported)


FIELDS = {
    "metadata": ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"),
    "spec": ("ports", "clusterIP", "nodeName", "maxRetry", "tasks", "policies"),
    "status": ("state", "conditions", "containerStatuses", "initContainerStatuses", "retryCount"),
}


@given(st.data())
def test_objects_with_null_anywhere_are_read(data: st.DataObject) -> None:
    sent: dict[str, Any] = {
        part: data.draw(
            st.none()
            if part != "metadata" and data.draw(st.booleans())
            else st.fixed_dictionaries({}, optional=dict.fromkeys(names, st.none()))
        )
        for part, names in FIELDS.items()
    }
    found = decode_object(json.dumps(sent).encode())
    assert not read_pod(found).deleting
    assert not read_job(found).deleting
    assert not read_service(found).deleting
