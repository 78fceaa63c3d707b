"""Tests paged lists: page sizes adapt, whatever the server does with limits and tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from aiohttp import web

from controller.kube import decoding
from controller.kube import watch as watch_module
from controller.kube.decoding import METADATA, FieldTransform
from controller.kube.errors import Unavailable
from controller.kube.kinds import PODS
from controller.kube.watch import Listed, watch
from controller.volcano import fields
from tests.controller.kube.api_server import Answer, Script, says, serving, streams


def pods(first: int, count: int, size: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": f"p-{number}", "managedFields": [{"f:x": "y" * size}]},
            "spec": {"nodeName": "n", "containers": [{"name": "job"}]},
            "status": {"phase": "Running", "conditions": None},
        }
        for number in range(first, first + count)
    ]


def paging(count: int, *, size: int = 0, most: int | None = None) -> Answer:
    """Respond with pages of the requested size, at most *most*; 0 returns the whole list."""

    async def answer(request: web.Request) -> web.StreamResponse:
        first = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", count)) if most is None else most or count
        last = min(count, first + limit)
        metadata = {"resourceVersion": str(100 + first), "remainingItemCount": count - last}
        if last < count:
            metadata["continue"] = str(last)
        items = pods(first, last - first, size)
        return web.json_response({"kind": "PodList", "items": items, "metadata": metadata})

    return answer


async def read(answer: Answer, folder: Path, transform: FieldTransform = METADATA) -> Any:
    script = Script(answer)
    async with serving(script, folder) as kube:
        parts = [part async for part in kube.parts(PODS, transform=transform)]
    objects = [one for part in parts for one in part.objects]
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(part.objects for part in parts[:-1])
    return objects, parts[-1].version, [query for *_, query in script.requests]


def names(objects: Sequence[Any]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


async def test_the_page_size_adapts_to_object_size(tmp_path: Path) -> None:
    small, version, asked = await read(paging(1000), tmp_path)
    assert names(small) == [f"p-{number}" for number in range(1000)]
    assert version == "100", "the first page's: a later one's hides what happened meanwhile"
    assert [query["limit"] for query in asked] == ["100", "500", "500"]
    large, _, asked = await read(paging(300, size=50_000), tmp_path)
    assert len(large) == 300
    limits = [int(query["limit"]) for query in asked]
    assert limits[0] == decoding.FIRST_LIMIT
    assert all(50 < limit < 100 for limit in limits[1:])


async def test_only_fields_declared_by_the_transform_are_kept(tmp_path: Path) -> None:
    objects, *_ = await read(paging(3), tmp_path, FieldTransform(fields.POD))
    assert objects[0] == {
        "metadata": {"name": "p-0"},
        "spec": {"nodeName": "n", "containers": [{"name": "job"}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("most", [0, 7])
async def test_a_server_side_page_limit_is_accepted(tmp_path: Path, most: int) -> None:
    objects, version, _ = await read(paging(200, most=most), tmp_path)
    assert (names(objects), version) == ([f"p-{n}" for n in range(200)], "100")


async def test_an_oversize_page_is_aborted_while_streaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LONGEST_PAGE", 100_000)
    objects, version, asked = await read(paging(300, size=3000, most=0), tmp_path)
    assert (names(objects), version) == ([f"p-{n}" for n in range(300)], "100")
    assert len(asked) == 1
    # Each page is too long, and is cut in the middle of the list.
    objects, version, asked = await read(paging(300, size=3000, most=100), tmp_path)
    assert (names(objects), version) == ([f"p-{n}" for n in range(300)], "100")
    assert len(asked) == 3


async def test_empty_pages_with_continue_token_are_followed(tmp_path: Path) -> None:
    script = Script(
        says({"items": None, "metadata": {"resourceVersion": "5", "continue": "a"}}),
        says({"items": [], "metadata": {"resourceVersion": "6", "continue": "b"}}),
        says({"items": pods(0, 1), "metadata": {"resourceVersion": "7"}}),
    )
    async with serving(script, tmp_path) as kube:
        parts = [part async for part in kube.parts(PODS)]
    assert (names([one for part in parts for one in part.objects]), parts[-1].version) == (
        ["p-0"],
        "5",
    )


async def test_an_endlessly_repeated_page_is_unavailable(tmp_path: Path) -> None:
    same = says({"items": pods(0, 1), "metadata": {"resourceVersion": "5", "continue": "a"}})
    async with serving(Script(same), tmp_path) as kube:
        with pytest.raises(Unavailable):
            await kube.list(PODS)


@pytest.mark.parametrize(
    "cut",
    [b"", b'{"items":[', b'{"items":[{"metadata":{"name":"a"}}', b'{"items":[]'],
)
@pytest.mark.parametrize("longest", [0, 1 << 20])
async def test_a_truncated_page_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bytes, longest: int
) -> None:
    monkeypatch.setattr(decoding, "LONGEST_PAGE", longest)
    async with serving(Script(streams(cut)), tmp_path) as kube:
        with pytest.raises(Unavailable):
            await kube.list(PODS)


async def test_a_list_without_a_version_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "FIRST_PAUSE_SECONDS", 0.01)
    reported: list[object] = []
    script = Script(
        says({}),
        says({"items": pods(0, 1)}),
        says({"items": [], "metadata": {"resourceVersion": "5"}}),
    )
    async with (
        serving(script, tmp_path) as kube,
        aclosing(watch(kube, PODS, report=reported.append)) as events,
    ):
        assert await anext(events) == Listed(())
    assert [type(one) for one in reported] == [Unavailable, Unavailable, type(None)]


async def test_a_repeatedly_expiring_list_is_finally_requested_unpaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "FIRST_PAUSE_SECONDS", 0.01)
    asked: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        if "continue" in request.query:
            gone = {"kind": "Status", "code": 410, "reason": "Expired"}
            return web.json_response(gone, status=410)
        return await paging(150)(request)

    seen: list[Listed] = []
    async with serving(Script(answer), tmp_path) as kube, aclosing(watch(kube, PODS)) as events:
        async for event in events:
            assert isinstance(event, Listed)
            seen.append(event)
            if event.last:
                break
    assert [query.get("limit") for query in asked] == ["100", "500", "100", "500", None]
    assert sum(event.first for event in seen) == 3
    whole = [one for event in seen[-3:] for one in event.objects]
    assert seen[-3].first
    assert len(names(whole)) == 150


async def test_a_long_list_does_not_block_the_loop(tmp_path: Path) -> None:
    text = json.dumps({"items": pods(0, 2000, 3000), "metadata": {"resourceVersion": "1"}}).encode()

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type="application/json")

    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(perf_counter())
            await asyncio.sleep(0)

    async with serving(Script(answer), tmp_path) as kube, asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(beat())
        parts = [part async for part in kube.parts(PODS, transform=METADATA)]
        beating.cancel()
    assert sum(len(part.objects) for part in parts) == 2000
    # Decoding all of it in one turn takes 80 ms on an idle machine.
    turns = sorted(after - before for before, after in pairwise(beats))
    assert len(turns) > 20
