"""An application on a listener of its own."""

from __future__ import annotations

import aiohttp
from aiohttp import web

from shared.serving import listening


async def test_no_answer_says_what_serves_it() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        raise web.HTTPForbidden

    app = web.Application()
    app.add_routes([web.get("/refused", refuse)])
    async with (
        listening(app, ("127.0.0.1", 0)) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as client,
    ):
        for path in ("/refused", "/missing"):
            async with client.get(path) as answer:
                assert answer.headers["Server"] == "fumarole"
