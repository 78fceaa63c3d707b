"""A plain relay: an aiohttp handler that calls the app with aiohttp's client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import aiohttp
import uvloop
from aiohttp import WSMsgType, web

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"}
)
SESSION = web.AppKey("session", aiohttp.ClientSession)
BACKEND = web.AppKey("backend", str)


def end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


async def relay(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return await relay_socket(request)
    length = request.content_length
    headers = end_to_end(request.headers)
    if length is not None:
        headers["Content-Length"] = str(length)
    body = request.content.iter_chunked(65536) if request.body_exists else None
    url = request.app[BACKEND] + request.path_qs
    async with request.app[SESSION].request(
        request.method, url, headers=headers, data=body, allow_redirects=False
    ) as answer:
        response = web.StreamResponse(status=answer.status, headers=end_to_end(answer.headers))
        response.content_length = answer.content_length
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def relay_socket(request: web.Request) -> web.StreamResponse:
    browser = web.WebSocketResponse(compress=False, max_msg_size=0)
    url = request.app[BACKEND] + request.path_qs
    async with request.app[SESSION].ws_connect(url, max_msg_size=0) as app:
        await browser.prepare(request)

        async def downstream() -> None:
            async for message in app:
                await forward(message, browser)
            await browser.close()

        task = asyncio.create_task(downstream())
        async for message in browser:
            await forward(message, app)
        task.cancel()
    return browser


async def forward(
    message: aiohttp.WSMessage, to: web.WebSocketResponse | aiohttp.ClientWebSocketResponse
) -> None:
    if message.type is WSMsgType.BINARY:
        await to.send_bytes(message.data)
    elif message.type is WSMsgType.TEXT:
        await to.send_str(message.data)


async def main(port: int, backend: int) -> None:
    app = web.Application(client_max_size=0)
    app[BACKEND] = f"http://127.0.0.1:{backend}"
    app.router.add_route("*", "/{path:.*}", relay)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        app[SESSION] = session
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=8192).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
