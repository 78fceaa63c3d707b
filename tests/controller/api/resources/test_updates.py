"""Tests the outbox API: updates arrive in order, from any position, within bounded buffers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from controller.api.resources import updates
from controller.api.server_sent_events import KEEP_ALIVE_SECONDS
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from tests.controller.api.conftest import Api, service_token
from tests.controller.samples import forget_jobs, make_record

Event = dict[str, Any]


class Reader:
    """Parses the events of a stream."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self) -> Event:
        event: Event = {}
        async with asyncio.timeout(20):
            while True:
                line = (await self._content.readline()).decode()
                assert line, "the stream ended"
                if line.startswith(":"):
                    continue
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                elif event:
                    return event | {"data": json.loads(event["data"])}

    async def comment(self) -> str:
        """Skip to the next comment and return it."""
        async with asyncio.timeout(20):
            while True:
                line: str = (await self._content.readline()).decode()
                assert line, "the stream ended"
                if line.startswith(":"):
                    return line


@asynccontextmanager
async def following(api: Api, query: str = "", **headers: str) -> AsyncIterator[Reader]:
    async with api.client.get(f"/v1/updates{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield Reader(response.content)


async def happen(api: Api, *states: str, job: str = "j1") -> None:
    for state in states:
        async with api.store.write() as transaction:
            record = await find_job(transaction, job)
            if record is None:
                await insert_job(transaction, make_record(id=job), labels={})
            else:
                await update_job(transaction, record, now=5.0, state=state, reason=None)


async def test_updates_are_streamed_and_resumed_from_a_position(api: Api) -> None:
    await happen(api, "IN_QUEUE", "RUNNING")
    async with following(api, "?after=0") as reader:
        first, second = await reader.next(), await reader.next()
        assert (first["id"], first["event"], first["data"]["state"]) == ("1", "update", "IN_QUEUE")
        assert (second["data"]["job"], second["data"]["state"]) == ("j1", "RUNNING")
        await happen(api, "SUCCESS")
        assert (await reader.next())["data"]["state"] == "SUCCESS"
    # ``Last-Event-ID`` of a reconnecting reader overrides the query's ``after``.
    async with following(api, "?after=0", **{"Last-Event-ID": "2"}) as reader:
        assert (await reader.next())["id"] == "3"


async def test_without_a_position_a_stream_starts_with_the_next_update(api: Api) -> None:
    await happen(api, "IN_QUEUE")
    async with following(api) as reader:
        await happen(api, "RUNNING")
        assert (await reader.next())["id"] == "2"


async def test_a_client_that_accepts_json_gets_a_page(api: Api) -> None:
    await happen(api, "IN_QUEUE", "RUNNING", "SUCCESS")
    response = await api.client.get(
        "/v1/updates?after=1&limit=1", headers={"Accept": "application/json"}
    )
    page = await response.json()
    assert ([one["id"] for one in page["items"]], page["next"]) == ([2], 2)


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_a_client_selects_a_page_by_query(api: Api, accept: str) -> None:
    await happen(api, "IN_QUEUE", "RUNNING")
    response = await api.client.get("/v1/updates?follow=false&limit=1", headers={"Accept": accept})
    assert response.content_type == "application/json"
    assert (await response.json())["next"] == 1


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("APPLICATION/JSON", "application/json"),
        ("text/html, application/json;q=0.5", "application/json"),
        ("text/event-stream;q=0.5, application/json;charset=utf-8", "application/json"),
        ("text/event-stream, application/json", "text/event-stream"),
        ("application/json;q=0.9, text/event-stream", "text/event-stream"),
        ("application/json;q=0, */*", "text/event-stream"),
        ("application/*", "text/event-stream"),
    ],
)
async def test_a_client_that_accepts_both_gets_its_preference(
    api: Api, accept: str, media: str
) -> None:
    async with api.client.get("/v1/updates?after=0", headers={"Accept": accept}) as response:
        assert (response.status, response.content_type) == (200, media)


async def test_a_head_request_gets_no_body(api: Api) -> None:
    for _ in range(2):  # over the same connection
        response = await api.client.head("/v1/updates?after=0")
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert await response.read() == b""
    url = api.client.make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"HEAD /v1/updates HTTP/1.0\r\nAuthorization: Bearer {service_token()}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(10):
        sent = await reader.read()  # to EOF: nothing follows
    writer.close()
    assert sent.endswith(b"\r\n\r\n")


async def test_an_idle_stream_sends_keep_alive_comments(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.api.resources.updates.KEEP_ALIVE_SECONDS", 0.1)
    async with following(api, "?after=0") as reader:
        assert await reader.comment() == ": here\n"
        await happen(api, "IN_QUEUE")
        assert (await reader.next())["id"] == "1"


async def test_a_reader_behind_retention_is_notified(api: Api) -> None:
    await happen(api, "IN_QUEUE", "SUCCESS")
    async with api.store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=6.0, finished_at=6.0)
        assert await forget_jobs(transaction, finished_before=7.0, limit=9) == 1
    response = await api.client.get("/v1/updates?after=1")
    assert (response.status, (await response.json())["details"]) == (410, {"through": 2})
    async with following(api, "?after=2") as reader:
        await happen(api, "IN_QUEUE", job="j2")
        assert (await reader.next())["data"]["job"] == "j2"


async def test_a_reader_ahead_of_the_store_is_told_of_the_restore(
    api: Api,
) -> None:
    await happen(api, "IN_QUEUE", "RUNNING")
    for after in ("3", "1000"):
        response = await api.client.get("/v1/updates", headers={"Last-Event-ID": after})
        assert (response.status, (await response.json())["details"]) == (410, {"through": 2})
    async with following(api, "?after=2") as reader:
        await happen(api, "SUCCESS")
        assert (await reader.next())["id"] == "3"


async def test_a_stalled_reader_is_disconnected_and_others_are_not(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.api.server_sent_events.STALLED_SECONDS", 0.5)
    async with api.store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        record = make_record()
        for number in range(300):
            long = f"{number} " + "x" * 60000
            record = await update_job(transaction, record, now=1.0, message=long)
    stalled = await api.client.get("/v1/updates?after=0")
    assert api.streams.open == 1
    async with asyncio.timeout(20):
        while api.streams.open:  # the client reads nothing
            await asyncio.sleep(0.01)
    async with following(api, "?after=0") as reader:
        seen = [(await reader.next())["id"] for _ in range(301)]
        assert seen == [str(number) for number in range(1, 302)]
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(20):
                await stalled.content.read()
        stalled.close()


async def test_a_reader_that_leaves_a_silent_stream_frees_its_place(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.api.server_sent_events.CHECK_SECONDS", 0.05)
    for _ in range(2):
        async with following(api), following(api) as stays:
            async with following(api):
                assert api.streams.open == 3
            async with asyncio.timeout(KEEP_ALIVE_SECONDS / 3):
                while api.streams.open > 2:
                    await asyncio.sleep(0.01)
            await happen(api, "IN_QUEUE")
            assert (await stays.next())["data"]["state"] == "IN_QUEUE"
        async with asyncio.timeout(KEEP_ALIVE_SECONDS / 3):
            while api.streams.open:
                await asyncio.sleep(0.01)


async def test_the_number_of_streams_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(api, "?after=0"):
        monkeypatch.setattr(
            "controller.api.server_sent_events.EventStreams.full", property(lambda _: True)
        )
        refused = await api.client.get("/v1/updates?after=0")
        assert refused.status == 503
        assert "Retry-After" in refused.headers


async def test_a_stream_ends_with_the_longest_token_and_is_resumed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happen(api, "IN_QUEUE", "RUNNING")
    monkeypatch.setattr(api.streams, "longest_seconds", 1.0)
    seen = ["0"]

    async def read_all(reader: Reader) -> None:
        while seen[-1] != "3":
            seen.append((await reader.next())["id"])

    async with following(api, "?after=0") as reader:
        with pytest.raises(aiohttp.ClientError):  # no reader takes it for the end of the response
            await read_all(reader)
    monkeypatch.setattr(api.streams, "longest_seconds", 3600.0)
    await happen(api, "SUCCESS")
    async with following(api, **{"Last-Event-ID": seen[-1]}) as again:
        await read_all(again)
    assert seen == ["0", "1", "2", "3"]


async def test_a_malformed_position_is_refused(api: Api) -> None:
    for place in ("x", "-1", "9" * 30):
        response = await api.client.get("/v1/updates", headers={"Last-Event-ID": place})
        assert response.status == 422


async def test_open_streams_do_not_delay_shutdown(api: Api) -> None:
    async with following(api, "?after=0") as reader:
        began = asyncio.get_running_loop().time()
        await api.client.server.runner.shutdown()  # type: ignore[union-attr]  # the server runs
        with pytest.raises((aiohttp.ClientError, AssertionError)):
            await reader.next()
        assert asyncio.get_running_loop().time() - began < KEEP_ALIVE_SECONDS
    response = await api.client.get("/v1/updates?after=0")
    assert (response.status, (await response.json())["code"]) == (503, "too_many_streams")


async def test_a_follower_is_notified_without_polling(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "POLL_SECONDS", 3600.0)
    async with following(api) as reader:
        for states in (("IN_QUEUE",), ("RUNNING", "SUCCESS")):
            await happen(api, *states)
            for state in states:
                assert (await reader.next())["data"]["state"] == state
