"""The notice that a session ends soon, on the wire: in place of one document only."""

from __future__ import annotations

import time
from typing import Any

from tests.gateway.core.downstream.test_end_notice import NAVIGATES
from tests.gateway.relay.harness import COOKIE, answer, code_of, request, rig, route, status_of

HTML = "Content-Type: text/html"
KEPT = ('If-None-Match: "a"', "if-modified-since: Mon, 02 Nov 2026 10:00:00 GMT")


def ending(at: float) -> dict[str, Any]:
    """Return the changes of a route that ends *at* that time and began an hour ago."""
    return {"expires_at": at, "status": {"phase": "ready", "since": at - 3600}}


async def test_a_navigation_gets_one_notice_and_the_connection_stays_open() -> None:
    ends_at = time.time() + 300
    async with rig(route_changes=ending(ends_at), end_notice_seconds=600) as r:
        browser, app, _ = await r.joined(request("/api"))
        app.send(answer(b"{}", HTML))
        assert status_of((await browser.answer())[0]) == 200
        # Asked for anew, since a 304 would not say whether what the browser has is a download.
        browser.send(request("/lab", *NAVIGATES, *KEPT, "X-Last: 1"))
        head = await app.head()
        assert head.startswith(b"GET /lab ")
        assert b"if-" not in head.lower()
        assert b"\r\nX-Last: 1\r\n" in head
        app.send(answer(b"a file", "Content-Type: application/zip"))
        assert (await browser.answer())[1] == b"a file"
        browser.send(request("/lab", *NAVIGATES))
        await app.head()
        app.send(answer(b"a page", HTML, "set-cookie: app=1; Path=/", "Set-Cookie: fumarole=x"))
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (409, "session_ends_soon")
        notice = f"Set-Cookie: fumarole-told={int(ends_at)}; Path=/; Max-Age="
        assert notice.encode() in head
        assert b"Cache-Control: no-store" in head
        # The app may have renewed its session; the gateway's own cookie stays its own.
        assert b"\r\nSet-Cookie: app=1; Path=/\r\n" in head
        assert b"fumarole=x" not in head
        # A later request of the same connection is another matter, and so is one that was told.
        browser.send(request("/api"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(b"{}", HTML))
        assert status_of((await browser.answer())[0]) == 200
        cookie = f"Cookie: {COOKIE}; fumarole-told={int(ends_at)}; app=2"
        for _ in range(2):
            browser.send(request("/lab", *NAVIGATES, *KEPT, credential=cookie))
            head = await app.head()
            assert b"\r\nCookie: app=2\r\n" in head
            assert all(f"\r\n{field}\r\n".encode() in head for field in KEPT)
            app.send(answer(b"a page", HTML, "Set-Cookie: fumarole-told=1; Path=/"))
            head, body = await browser.answer()
            assert body == b"a page"
            assert b"fumarole" not in head
        # It was extended, and is told of again when that end is near.
        r.world.upsert(route(r.app.port, **ending(ends_at + 200)))
        browser.send(request("/lab", *NAVIGATES, credential=cookie))
        await app.head()
        app.send(answer(b"a page", HTML))
        assert status_of((await browser.answer())[0]) == 409


async def test_a_cached_decision_gives_notice_once_due() -> None:
    now = time.time()
    clock = [now]
    async with rig(
        route_changes=ending(now + 1000), end_notice_seconds=600, wall=lambda: clock[0]
    ) as r:
        browser, app, _ = await r.joined(request("/", *NAVIGATES))
        statuses = []
        for ahead in (100, 399, 400, 999):
            app.send(answer(b"a page", HTML))
            statuses.append(status_of((await browser.answer())[0]))
            clock[0] = now + ahead
            browser.send(request("/", *NAVIGATES))
            if statuses[-1] == 409:
                app = await r.app.connection()
            await app.head()
        assert statuses == [200, 200, 200, 409]


async def test_the_end_notice_is_off_by_default_and_under_public_links() -> None:
    async with rig(route_changes=ending(time.time() + 300)) as r:
        browser, app, _ = await r.joined(request("/", *NAVIGATES))
        app.send(answer(b"a page", HTML))
        assert (await browser.answer())[1] == b"a page"
    link = {"public": True, "hosts": [f"{'a' * 26}.apps.localhost", "demo.apps.localhost"]}
    changes = ending(time.time() + 300) | link
    async with rig(route_changes=changes, end_notice_seconds=600) as r:
        browser, app, _ = await r.joined(
            request("/", *NAVIGATES, host="demo.apps.localhost:8443", credential=None)
        )
        app.send(answer(b"a page", HTML))
        assert (await browser.answer())[1] == b"a page"
