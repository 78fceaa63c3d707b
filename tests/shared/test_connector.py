"""Tests the client's bound on interim responses against a raw server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from shared.connector import MOST_INTERIM, Connector

INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
BODY = b"x" * 100_000
FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@asynccontextmanager
async def responding(*responses: bytes) -> AsyncIterator[str]:
    """Run a server that sends *responses* in turn on each connection; yield its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            for response in responses:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response)
                await writer.drain()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/"


async def fetch(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.get(url) as response:
        return await response.read()


async def test_a_few_interim_responses_are_skipped_before_each_response() -> None:
    whole = INTERIM * MOST_INTERIM + FINAL
    async with (
        responding(whole, whole) as url,
        aiohttp.ClientSession(connector=Connector()) as http,
    ):
        assert [await fetch(http, url) for _ in range(2)] == [BODY, BODY]


@pytest.mark.parametrize("many", [MOST_INTERIM + 1, 20_000])
async def test_too_many_interim_responses_close_the_connection(many: int) -> None:
    async with (
        responding(INTERIM * many + FINAL) as url,
        aiohttp.ClientSession(connector=Connector()) as http,
    ):
        with pytest.raises(aiohttp.ClientError):
            await fetch(http, url)
        assert http.connector is not None
        assert not http.connector._conns  # none is kept for the next request
