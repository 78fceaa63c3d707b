"""What a running gateway tells apps and browsers; the rest of its rules are in tests/contract."""

from __future__ import annotations

import asyncio
import json
import re
import time

import pytest

from tests.gateway.conftest import World
from tests.gateway.http import HTML, code_of
from tests.gateway.upstreams import web_app


async def test_the_cookie_lives_no_longer_than_its_session(world: World) -> None:
    sid = await world.publish(port=1, expires_at=time.time() + 100)
    answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid))
    (age,) = re.findall(r"Max-Age=(\d+)", answer.headers["set-cookie"])
    assert 90 <= int(age) <= 100


async def test_the_app_sees_neither_cookie_nor_token_of_ours(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid, sub="ada lövelace")
        sent = {"Cookie": f"a=1; {cookie}; b=2", "X-Forwarded-User": "root", "X_Real_IP": "1.2.3.4"}
        assert (await world.gateway.ask(sid, "GET", "/", sent)).status == 200
        head = app.heads[-1]
        assert cookie.partition("=")[2].encode() not in head
        assert b"Cookie: a=1; b=2\r\n" in head
        assert b"X-Forwarded-User: ada%20l%C3%B6velace\r\n" in head
        assert b"root" not in head
        assert b"1.2.3.4" not in head
        token = world.gateway.signer.token(sid)
        assert (await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})).status == 200
        assert token.encode() not in app.heads[-1]


ODD_HEADS = {
    "more fields than aiohttp takes": [*(f"X-{n}: 1" for n in range(120)), *["Accept: */*"] * 120],
    "a field twice": ["User-Agent: a", "User-Agent: b", "ETag: a", "ETag: b", "Server: x"],
    "a type twice": ["Content-Type: text/plain", "Content-Type: text/plain"],
    "a draft's key": ["Sec-WebSocket-Key1: x"],
    "an unknown expectation": ["Expect: pigs"],
}


@pytest.mark.parametrize("fields", ODD_HEADS.values(), ids=ODD_HEADS)
async def test_a_page_is_answered_in_our_words_whatever_its_head(
    world: World, fields: list[str]
) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    lines = ["POST /.fumarole/open HTTP/1.1", f"Host: {world.gateway.host(sid)}", *fields]
    await connection.send("\r\n".join([*lines, "Content-Length: 2", "", "{}"]).encode())
    answer = await connection.answer()
    assert (answer.status, code_of(answer)) == (400, "bad_request")
    assert answer.headers["server"] == "fumarole"
    await connection.close()


@pytest.mark.parametrize(("version", "told"), [("1.0", False), ("1.1", True)])
async def test_only_http_1_1_is_told_to_go_on_by_a_page(
    world: World, version: str, told: bool
) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    lines = [f"POST /.fumarole/open HTTP/{version}", f"Host: {world.gateway.host(sid)}"]
    lines += ["Expect: 100-continue", "Content-Length: 2", "", ""]
    await connection.send("\r\n".join(lines).encode())
    if told:
        assert (await connection.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    await connection.send(b"{}")
    assert code_of(await connection.answer()) == "bad_request"
    await connection.close()


async def test_another_user_is_asked_first_and_the_link_is_not_spent_by_it(world: World) -> None:
    sid = await world.publish()
    cookie = await world.gateway.open(sid, sub="ada")
    token = world.gateway.signer.token(sid, sub="grace", name="<b>Grace</b>")
    asked = await world.gateway.post_token(sid, token, headers={"Cookie": cookie})
    assert (asked.status, code_of(asked)) == (409, "other_user")
    page = await world.gateway.post_token(sid, token, headers={"Cookie": cookie, **HTML})
    assert page.status == 409
    assert "&lt;b&gt;Grace&lt;/b&gt;" in page.text
    assert "<b>" not in page.text
    done = await world.gateway.post_token(sid, token, headers={"Cookie": cookie}, replace="1")
    assert done.status == 303


async def test_a_starting_session_is_503_with_its_own_words(world: World) -> None:
    sid = await world.publish(state="starting", message="Pulling <image>")
    cookie = await world.gateway.open(sid)
    answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (503, "session_starting")
    assert int(answer.headers["retry-after"]) > 0
    page = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie, **HTML})
    assert page.status == 503
    assert "Pulling &lt;image&gt;" in page.text
    state = await world.gateway.ask(sid, "GET", "/.fumarole/state", {"Cookie": cookie})
    assert json.loads(state.body) == {"state": "starting", "message": "Pulling <image>"}


async def test_a_target_out_of_bounds_is_503_and_one_that_is_not_there_502(world: World) -> None:
    outside = await world.publish(target={"host": "10.1.2.3"})
    cookie = await world.gateway.open(outside)
    answer = await world.gateway.ask(outside, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (503, "target_forbidden")
    async with web_app() as app:
        nobody = await world.publish(port=app.port)
    await asyncio.sleep(0.05)
    cookie = await world.gateway.open(nobody)
    answer = await world.gateway.ask(nobody, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (502, "app_unreachable")
    host = world.gateway.host(nobody).split(":")[0]
    told = json.loads((await world.gateway.ask_ops(f"/debug/routes?host={host}")).text)["host"]
    assert (told["why"], told["failed"]["code"]) == ("failing", "app_unreachable")
