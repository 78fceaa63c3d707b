from __future__ import annotations

from tests.gateway.relay.harness import HOST, answer, request, rig


async def test_a_request_crosses_in_canonical_form() -> None:
    async with rig() as r:
        browser, app, head = await r.joined(request("/a?b=c", "X-Own:  1 "))
        assert (
            head
            == (
                f"GET /a?b=c HTTP/1.1\r\nHost: {HOST}\r\nX-Own: 1\r\n"
                f"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: {HOST}\r\n"
                "X-Forwarded-Proto: http\r\nX-Forwarded-User: ada\r\n\r\n"
            ).encode()
        )
        app.send(answer(b"hello"))
        got, body = await browser.answer()
        assert got == (
            b"HTTP/1.1 200 OK\r\nContent-Security-Policy: frame-ancestors 'self'\r\n"
            b"Cache-Control: private\r\nContent-Length: 5\r\n\r\n"
        )
        assert body == b"hello"
