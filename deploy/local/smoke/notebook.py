"""Uses JupyterLab: starts a kernel, which executes a cell over its WebSocket."""

from __future__ import annotations

import uuid
from typing import Any

from aiohttp import WSMsgType

from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Opened, code_of
from deploy.local.smoke.work import Stopwatch

CODE = "6*7"


async def use(opened: Opened, watch: Stopwatch) -> str:
    """Return a kernel's result of ``6*7``."""
    async with await opened.get(opened.start) as page:
        watch.first_byte()
        if page.status != 200 or b"jupyter-config-data" not in await page.read():
            said = await code_of(page)
            raise SmokeFailed(f"JupyterLab's page was answered {page.status}{said}")
    # Jupyter's own protection against cross-site requests. A page sends the value of its cookie.
    token = {"X-XSRFToken": opened.cookie("_xsrf")}
    kernel = await opened.post("/api/kernels", {"name": "python3"}, **token)
    said = await _execute(opened, kernel["id"], CODE)
    if said != "42":
        raise SmokeFailed(f"the kernel says that {CODE} is {said}")
    return f"{CODE} = {said}"


async def _execute(opened: Opened, kernel: str, code: str) -> str:
    """Return the result of *code* (Jupyter's messaging protocol 5.3, as JSON)."""
    request = make_request(code)
    async with opened.websocket(f"/api/kernels/{kernel}/channels") as channels:
        await channels.send_json(request)
        async for message in channels:
            if message.type is not WSMsgType.TEXT:
                continue
            response = message.json()
            if response["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            match response["msg_type"]:
                case "execute_result":
                    return str(response["content"]["data"]["text/plain"])
                case "error":
                    raise SmokeFailed(f"the kernel raised {response['content']['ename']}")
    raise SmokeFailed("the kernel's WebSocket was closed before it answered")


def make_request(code: str) -> dict[str, Any]:
    """Return an ``execute_request`` in the format of the kernel's WebSocket."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "session": uuid.uuid4().hex,
        "username": "",
        "version": "5.3",
    }
    content = {
        "code": code,
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    return {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "buffers": [],
    }
