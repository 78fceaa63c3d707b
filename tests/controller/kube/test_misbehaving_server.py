"""Tests a misbehaving API server: requests stay rare, and no event is missed afterwards."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from controller.kube import client, transport
from controller.kube import watch as module
from controller.kube.errors import Expired
from controller.kube.kinds import PODS
from controller.kube.watch import Changed, watch
from tests.controller.kube.api_server import (
    Answer,
    Script,
    gone,
    listing,
    says,
    serving,
    streams,
    thing,
)

LIST = listing(version="5")
PAUSE = 0.05


TROUBLES: dict[str, list[Answer]] = {
    "429": [says({"reason": "TooManyRequests"}, 429)],
    "429 that says when": [says({}, 429, **{"Retry-After": "1"})],
    "500": [says({}, 500)],
    "503": [says({}, 503)],
    "401": [says({"reason": "Unauthorized"}, 401)],
    "403": [says({"reason": "Forbidden"}, 403)],
    "no JSON": [says("x", 502)],
    "a list that hangs": [streams(b"{", then="hang")],
    "a list that expires between its pages": [
        listing(version="5", **{"continue": "next"}),
        says({"reason": "Expired"}, 410),
    ],
    "a watch that is refused": [LIST, says({}, 500)],
    "a watch that ends at once": [LIST, streams()],
    "a watch that is cut at once": [LIST, streams(then="cut")],
    "a watch that is cut in mid-event": [LIST, streams(b'{"type":"ADDED","obj', then="cut")],
    "a watch that ends in mid-event": [LIST, streams(b'{"type":"ADDED","obj')],
    "a watch that has expired": [LIST, says({"reason": "Expired"}, 410)],
    "a watch that expires": [LIST, streams(gone())],
    "a watch that says nothing": [LIST, streams(then="hang")],
}
"""What the server answers, again and again, to lists and to watches or second pages."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", PAUSE)
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.2)
    for reads_it in (client, transport):
        monkeypatch.setattr(reads_it, "CALL_SECONDS", 0.2)


async def test_no_error_causes_a_hot_loop_or_hides_later_events(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:  # in parallel: each takes a while
        for number, trouble in enumerate(TROUBLES):
            folder = tmp_path / str(number)
            folder.mkdir()
            tasks.create_task(follow_through(trouble, folder), name=trouble)


async def follow_through(trouble: str, folder: Path) -> None:
    script = Script(LIST)
    script.repeat(*TROUBLES[trouble])
    async with serving(script, folder) as kube:
        stream = watch(kube, PODS)
        async with aclosing(stream):
            seen: list[object] = []

            async def follow() -> None:
                async for event in stream:
                    seen.append(event)
                    if isinstance(event, Changed):
                        return

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.8)
            # Pauses double: 0.05, 0.1, 0.2, 0.4 s at most, and half of that at least. One round may
            # list two pages three times, or repeat each call with new credentials.
            asked = len(script.requests)
            assert asked <= 36 if "pages" in trouble else asked <= 14, (trouble, asked)
            script.well(
                listing(thing("a", "8"), version="8"),
                streams(("ADDED", thing("b", "9")), then="hang"),
            )
            async with asyncio.timeout(20):
                await following
    assert seen[-1] == Changed(thing("b", "9")), trouble


async def test_an_always_expiring_list_is_abandoned(tmp_path: Path) -> None:
    script = Script(LIST)
    script.repeat(listing(version="5", **{"continue": "next"}), says({"reason": "Expired"}, 410))
    async with serving(script, tmp_path) as kube:
        with pytest.raises(Expired):
            await kube.list(PODS)
    assert len(script.requests) == 2 * (client.PAGED_LISTS + 1)
