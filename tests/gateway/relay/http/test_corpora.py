"""Requests that never reach an app, and responses that never reach a browser."""

from __future__ import annotations

import asyncio

from tests.corpora import bytes_of, read_corpus
from tests.gateway.relay.harness import (
    COOKIE,
    HOST,
    PORT,
    SID,
    UPGRADE,
    answer,
    code_of,
    reason_of,
    request,
    rig,
    status_of,
    upgrade,
)

REFUSED = read_corpus("refused_requests", 3)


# What is no request that anybody could go on after.
def expand(text: str) -> bytes:
    name = f"{SID}.apps.localhost"
    words = {"host": HOST, "name": name, "port": str(PORT), "value": COOKIE}
    return bytes_of(text, cookie=f"Cookie: {COOKIE}", upgrade=UPGRADE, **words)


async def test_refused_requests_are_refused_when_sent_byte_by_byte() -> None:
    wrong = []
    async with rig() as r:
        for status, name, text in REFUSED[::11]:
            browser = await r.browser()
            for byte in expand(text):
                if browser.writer.transport.is_closing():
                    break
                browser.send(bytes([byte]))
                await asyncio.sleep(0)
            head, _ = await browser.answer()
            if status_of(head) != int(status):
                wrong.append((name, int(status), status_of(head)))
        assert not wrong
        assert r.app.count == 0


async def test_every_malformed_response_is_502_and_closes_the_upstream_connection() -> None:
    wrong = []
    async with rig() as r:
        for name, text in read_corpus("broken_answers", 2):
            browser, app, _ = await r.joined(request())
            app.send(bytes_of(text))
            head, body = await browser.answer()
            bad = status_of(head) == 502 and code_of(body) == "app_bad_answer"
            if not bad or b"evil" in body or not reason_of(body):
                wrong.append((name, head, body))
            assert await app.rest() == b"", name
            browser.close()
        assert not wrong
        assert len(r.path.pool) == 0


async def test_every_malformed_101_is_502() -> None:
    async with rig() as r:
        for name, text in read_corpus("broken_switches", 2):
            browser, app, _ = await r.joined(upgrade())
            app.send(bytes_of(text))
            head, body = await browser.answer()
            assert status_of(head) == 502, name
            assert reason_of(body), name
            assert await app.rest() == b"", name
        assert r.path.meters.tunnels == 0


async def test_a_head_response_with_a_body_does_not_consume_the_next_response() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request(method="HEAD"))
        app.send(answer(b"body"))
        head = await browser.head()
        assert status_of(head) == 502
        assert await app.rest() == b""
