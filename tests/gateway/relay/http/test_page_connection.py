"""Requests for the gateway's own pages, served by a real aiohttp application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gateway.core.access.decision import ServePage
from gateway.core.http.framing import NoBody
from gateway.core.limits.values import Limits
from gateway.relay.http.page_connection import EXTRA_INFO, PageConnection
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    BASE,
    COOKIE,
    HOST,
    ORIGIN,
    OTHER_SID,
    PORT,
    SID,
    Rig,
    answer,
    cookie,
    request,
    rig,
    route,
    status_of,
    upgrade,
)
from tests.gateway.relay.http.test_admission import claims

LARGE = bytes(range(250)) * 4000
STATIC = "/.fumarole/static/page.css"
TOKEN = "Fumarole-Token: good"


class Pages:
    """Records its requests, and responds with what it got."""

    def __init__(self) -> None:
        self.asked: list[ServePage] = []
        self.bodies: list[bytes] = []
        self.heads: list[dict[str, str]] = []
        self.server: Callable[[], asyncio.Protocol]
        self.app = web.Application(client_max_size=16384)
        self.app.router.add_route("*", "/.fumarole/slow", self._slow)
        self.app.router.add_route("*", "/.fumarole/large", self._large)
        self.app.router.add_route("*", "/{rest:.*}", self._page)

    async def _page(self, request: web.Request) -> web.Response:
        transport = request.transport
        assert transport is not None
        self.asked.append(transport.get_extra_info(EXTRA_INFO))
        self.heads.append(dict(request.headers))
        body = await request.read()
        self.bodies.append(body)
        return web.Response(text=f"{request.method} {request.raw_path} {len(body)}")

    async def _large(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for begin in range(0, len(LARGE), 1 << 16):
            await response.write(LARGE[begin : begin + (1 << 16)])
        return response

    async def _slow(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await asyncio.sleep(30)
        return response


@asynccontextmanager
async def with_pages(
    limits: Limits | None = None, **changes: object
) -> AsyncIterator[tuple[Rig, Pages]]:
    pages = Pages()
    runner = web.AppRunner(
        pages.app, handle_signals=False, access_log=None, handler_cancellation=True
    )
    await runner.setup()
    assert runner.server is not None
    pages.server = runner.server
    try:
        async with rig(pages=runner.server, route_changes=changes, limits=limits) as r:
            yield r, pages
    finally:
        await runner.cleanup()


async def test_a_page_receives_request_and_decision_and_closes_the_connection() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        browser.send(
            request(
                "/.fumarole/state?a", "Accept-Language: de", "X-Own: 1", "Connection: keep-alive"
            )
        )
        raw = await browser.rest()
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
        assert raw.endswith(b"GET /.fumarole/state?a 0")
        (handed,) = pages.asked
        assert (handed.client_address, handed.host, handed.sid) == (
            "127.0.0.1",
            f"{SID}.{BASE}",
            SID,
        )
        assert handed.route is not None
        assert handed.grant is not None
        assert (handed.grant.sub, handed.holder, handed.refusal) == ("ada", "ada", None)
        assert pages.heads[0]["Host"] == HOST
        assert pages.heads[0]["Accept-Language"] == "de"
        assert "X-Own" not in pages.heads[0]
        assert pages.heads[0]["Connection"] == "close"
        assert COOKIE not in str(pages.heads)
        await asyncio.sleep(0.01)
        assert r.app.count == 0


async def test_a_page_sees_the_framed_body_and_never_a_byte_beyond() -> None:
    async with with_pages() as (r, pages):
        for fields, body in (
            ("Content-Length: 5", b"hello"),
            ("Transfer-Encoding: chunked", b'2;x="y"\r\nhe\r\n3\r\nllo\r\n0\r\nT: u\r\n\r\n'),
        ):
            browser = await r.browser()
            head = request("/.fumarole/open", fields, method="POST")
            browser.send(head + body + request("/.fumarole/smuggled"))
            raw = await browser.rest()
            assert raw.count(b"HTTP/1.1 ") == 1
            assert raw.endswith(b"POST /.fumarole/open 5")
        assert pages.bodies == [b"hello", b"hello"]


async def test_a_body_in_pieces_arrives_whole() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        browser.send(request("/.fumarole/open", "Transfer-Encoding: chunked", method="POST"))
        for byte in b"5\r\nhello\r\n0\r\n\r\n":
            browser.send(bytes([byte]))
            await asyncio.sleep(0.001)
        assert (await browser.rest()).endswith(b"POST /.fumarole/open 5")
        assert pages.bodies == [b"hello"]


async def test_a_body_that_is_too_large_is_413_and_the_answer_arrives() -> None:
    async with with_pages() as (r, _):
        browser = await r.browser()
        fields = "Content-Length: 1000000"
        browser.send(request("/.fumarole/open", fields, method="POST") + b"x" * 1000000)
        assert (await browser.rest()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("kept", "of"),
    [
        (
            request("/.fumarole/open", "Content-Length: 9", method="POST", credential=None),
            "ARRIVAL",
        ),
        (request("/.fumarole/slow", credential=None), "READ"),
    ],
    ids=["body", "response"],
)
async def test_a_page_connection_may_be_evicted_at_a_crowded_address(
    kept: bytes, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_pages(Limits(address_connections=2)) as (r, _):
        holding = [await r.browser("127.5.0.1") for _ in range(2)]
        for one in holding:
            one.send(kept)
        async with asyncio.timeout(30):
            while len(r.path.pages) < 2:
                await asyncio.sleep(0.005)
        monkeypatch.setattr("gateway.core.limits.connection_quota.MIN_IDLE_SECONDS", 0.0)
        monkeypatch.setattr(f"gateway.relay.http.page_connection.{of}_SECONDS", 0.0)
        late = await r.browser("127.5.0.1")
        late.send(request("/.fumarole/state", credential=None))
        assert status_of(await late.head()) == 200
        for one in holding:
            await one.gone()
        async with asyncio.timeout(30):
            while r.path.pages or r.path.connection_quota.unauthenticated:
                await asyncio.sleep(0.005)
        assert not r.path.connection_quota.unauthenticated


async def test_malformed_chunks_reset_the_connection() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        head = request("/.fumarole/open", "Transfer-Encoding: chunked", method="POST")
        browser.send(head + b"5\nhello\r\n0\r\n\r\n")
        assert await browser.gone() == b""
        assert pages.bodies == []


async def test_without_credential_a_page_receives_the_reason() -> None:
    async with with_pages() as (r, pages):
        for credential, fields, code, holder in (
            (None, (), "no_credential", None),
            (f"Cookie: {COOKIE}x", (), "bad_credential", None),
            (f"Cookie: {cookie(sid=OTHER_SID)}", (), "other_session", None),
            (f"Cookie: {COOKIE}", ("Origin: https://evil.example",), "other_origin", "ada"),
        ):
            browser = await r.browser()
            browser.send(request("/.fumarole/", *fields, credential=credential))
            await browser.rest()
            handed = pages.asked[-1]
            assert handed.grant is None
            assert handed.refusal is not None
            assert (handed.refusal.code, handed.holder) == (code, holder)


@pytest.mark.parametrize("known", ["all", "nothing", "nothing lately", "no such session"])
async def test_page_assets_are_served_without_credential_in_any_state(known: str) -> None:
    async with with_pages() as (r, pages):
        match known:
            case "nothing":
                r.world.table = None
            case "nothing lately":
                r.world.serving = False
            case "no such session":
                r.world.remove()
        browser = await r.browser()
        browser.send(request(STATIC, credential=None))
        assert (await browser.rest()).startswith(b"HTTP/1.1 200 ")
        (handed,) = pages.asked
        assert (handed.client_address, handed.sid, handed.route) == ("127.0.0.1", SID, None)
        assert handed.grant is None
        if known.startswith("nothing"):
            assert (await r.ask(request("/.fumarole/")))[0] == 503
        assert r.app.count == 0


async def test_a_sign_out_gets_a_response_although_it_ends_its_own_access_right() -> None:
    async with with_pages() as (r, pages):
        for target, is_member in (("/.fumarole/sign-out", False), ("/.fumarole/other", True)):
            browser = await r.browser()
            body = "Content-Length: 3"
            browser.send(request(target, f"Origin: {ORIGIN}", body, method="POST"))
            async with asyncio.timeout(10):
                while len(pages.asked) == len(pages.bodies):
                    await asyncio.sleep(0.001)
            assert len(r.live) == is_member
            browser.send(b"end")
            assert (await browser.rest()).startswith(b"HTTP/1.1 200 ")


async def test_reopening_gets_a_response_although_the_old_access_right_ends() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        origin = f"Origin: {ORIGIN}"
        browser.send(request("/.fumarole/open", origin, "Content-Length: 4", method="POST") + b"to")
        while not r.path.pages:
            await asyncio.sleep(0)
        r.world.revoke(sid=SID)
        browser.send(b"ld")
        assert status_of(await browser.head()) == 200
        assert pages.bodies == [b"told"]


async def test_a_page_receives_the_whole_body_sent_during_token_verification() -> None:
    async with with_pages() as (r, pages):
        r.gate.tokens["good"] = claims()
        proven, verify = asyncio.Event(), r.gate.verify

        async def slow(token: str, *, address: str) -> SessionClaims:
            await proven.wait()
            return await verify(token, address=address)

        r.gate.verify = slow  # type: ignore[method-assign]  # only slower
        browser = await r.browser()
        body = b"x" * 16_000
        raw = request("/.fumarole/state", method="POST", body=body, credential=TOKEN)
        browser.send(raw + b"y" * 200_000)  # More than is kept: it is not read any more.
        await asyncio.sleep(0.05)
        proven.set()
        assert (await browser.rest()).endswith(b"POST /.fumarole/state 16000")
        assert pages.bodies == [body]


async def test_two_gateway_cookies_are_refused_before_any_page() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        browser.send(request("/.fumarole/", credential=f"Cookie: {COOKIE}; {COOKIE}"))
        assert (await browser.rest()).startswith(b"HTTP/1.1 400 ")
        assert pages.asked == []


async def test_opening_on_an_unknown_host_triggers_a_repair() -> None:
    async with with_pages() as (r, pages):
        host = f"{OTHER_SID}.{BASE}:{PORT}"
        for method, target, status, repairs in (
            ("POST", "/.fumarole/open", 200, 0),
            ("POST", "/.fumarole/state", 404, 0),
            # Who was sent here may be ahead of the news of the session.
            ("GET", "/.fumarole/open", 404, 1),
        ):
            browser = await r.browser()
            browser.send(request(target, method=method, host=host, credential=None))
            assert status_of(await browser.head()) == status
            assert r.world.repairs == repairs
        assert [(handed.sid, handed.route) for handed in pages.asked] == [(OTHER_SID, None)]


async def test_pages_respond_while_a_route_is_starting() -> None:
    async with with_pages(state="starting") as (r, pages):
        browser = await r.browser()
        browser.send(request("/.fumarole/state"))
        assert (await browser.rest()).startswith(b"HTTP/1.1 200 ")
        assert pages.asked[0].route is not None
        assert pages.asked[0].route.state == "starting"


async def test_authorized_users_get_desktop_and_terminal_pages() -> None:
    async with with_pages(kind="vnc", target={"scheme": "tcp"}) as (r, pages):
        browser = await r.browser()
        browser.send(request("/"))
        assert (await browser.rest()).endswith(b"GET / 0")
        assert pages.asked[0].grant is not None
        browser = await r.browser()
        browser.send(request("/", credential=None))
        assert status_of(await browser.head()) == 401
        r.world.upsert(
            route(r.app.port, kind="vnc", target={"scheme": "tcp"}, state="starting", rev=2)
        )
        browser = await r.browser()
        browser.send(request("/"))
        assert status_of(await browser.head()) == 503
        assert len(pages.asked) == 1
        assert r.app.count == 0


async def test_a_path_similar_to_the_reserved_prefix_is_forwarded() -> None:
    async with with_pages() as (r, pages):
        for target in ("/.fumarolex", "/%2efumarole/open", "/x/../.fumarole/open", "/.FUMAROLE/"):
            _, app, head = await r.joined(request(target))
            assert head.startswith(f"GET {target} HTTP/1.1\r\n".encode())
            app.send(answer(b"", "Connection: close"))
        assert pages.asked == []


async def test_an_upgrade_field_is_dropped_for_a_page() -> None:
    async with with_pages() as (r, pages):
        browser = await r.browser()
        browser.send(upgrade("/.fumarole/connect"))
        await browser.rest()
        assert "Upgrade" not in pages.heads[0]
        assert "Origin" in pages.heads[0]


async def test_a_page_response_in_progress_is_reset_when_its_grant_ends() -> None:
    async with with_pages() as (r, _):
        browser = await r.browser()
        browser.send(request("/.fumarole/slow", f"Origin: {ORIGIN}"))
        await browser.until(b"begun")
        r.world.revoke(sid=SID)
        assert await browser.gone() in (b"", b"\r\n")
        assert len(r.live) == 0


@pytest.mark.parametrize("change", [{"state": "starting"}, {"target": {"id": "pod2"}}])
async def test_a_page_survives_target_changes_and_ends_with_the_grant(
    change: dict[str, object],
) -> None:
    async with with_pages() as (r, pages):
        slow = request("/.fumarole/page", "Origin: " + ORIGIN, "Content-Length: 4", method="POST")
        browser, other = await r.browser(), await r.browser()
        for one in (browser, other):
            one.send(slow + b"to")
        while len(r.live) < 2:
            await asyncio.sleep(0)
        r.world.upsert(route(r.app.port, **change))
        browser.send(b"ld")
        assert status_of(await browser.head()) == 200
        assert pages.bodies == [b"told"]
        r.world.revoke(sid=SID)
        with pytest.raises(ConnectionResetError):
            await other.rest()
        await browser.gone()
        assert len(r.live) == len(r.live.closing) == 0


async def test_a_browser_that_leaves_ends_its_page() -> None:
    async with with_pages() as (r, _):
        browser = await r.browser()
        browser.send(request("/.fumarole/slow"))
        await browser.until(b"begun")
        browser.reset()
        await asyncio.sleep(0.05)
        assert not r.path.pages
        assert len(r.live) == 0


async def test_a_browser_that_leaves_while_reading_is_paused_ends_its_page() -> None:
    async with with_pages() as (r, _):
        browser, app, _ = await r.joined(request("/1") + request("/.fumarole/slow"))
        browser.send(b"x" * (100 << 10))  # More than is kept: the connection is not read any more.
        await asyncio.sleep(0.05)
        app.send(answer(b"one"))
        await browser.until(b"begun")
        browser.reset()
        async with asyncio.timeout(10):
            while r.path.pages:
                await asyncio.sleep(0.01)


async def test_requests_pipelined_before_a_page_are_answered_first() -> None:
    async with with_pages() as (r, _):
        browser, app, _ = await r.joined(request("/1") + request("/.fumarole/page"))
        app.send(answer(b"one"))
        assert (await browser.answer())[1] == b"one"
        assert (await browser.rest()).endswith(b"GET /.fumarole/page 0")


async def test_a_page_accepts_a_connection_with_paused_reading() -> None:
    async with with_pages() as (r, pages):
        page = request("/.fumarole/open", "Content-Length: 16000", method="POST")
        browser, app, _ = await r.joined(request("/1") + page + b"x" * 1000)
        browser.send(b"x" * (100 << 10))  # More than is kept: the connection is not read any more.
        await asyncio.sleep(0.05)
        app.send(answer(b"one"))
        assert (await browser.answer())[1] == b"one"
        assert (await browser.rest()).endswith(b"POST /.fumarole/open 16000")
        assert pages.bodies == [b"x" * 16000]


class FullTransport(asyncio.Transport):
    """A browser that has not read earlier bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None:
        self.protocol.connection_lost(None)

    def resume_reading(self) -> None:
        """Read."""

    def get_write_buffer_size(self) -> int:
        return 1 << 20

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)


async def test_a_page_writes_after_earlier_output_was_read() -> None:
    async with with_pages() as (r, pages):
        browser = FullTransport()
        connection = PageConnection(
            context=r.path,
            browser=browser,
            page=pages.server(),
            body=NoBody(),
            right=None,
            key="127.0.0.1",
            writable=False,
        )
        r.path.pages.add(connection)
        head = b"GET /.fumarole/large HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n"
        connection.start(pages_request(), head, b"")
        await asyncio.sleep(0.1)
        early = len(browser.written)
        connection.resume_writing()
        async with asyncio.timeout(10):
            while not browser.written.endswith(b"0\r\n\r\n"):
                await asyncio.sleep(0.01)
        assert early < len(LARGE) < len(browser.written)
        browser.abort()
        assert connection not in r.path.pages


def pages_request() -> ServePage:
    """Return the decision on a request without a user."""
    return ServePage(
        client_address="127.0.0.1",
        host="a.b",
        sid="",
        route=None,
        grant=None,
        refusal=None,
        holder=None,
    )


async def test_reading_pauses_one_turn_after_a_page_stops_reading() -> None:
    """Yielding a turn must not undo the page's backpressure."""
    async with with_pages() as (r, _):
        browser = await r.browser()
        browser.send(request("/.fumarole/slow"))
        await browser.until(b"begun")
        (page,) = r.path.pages
        assert isinstance(page, PageConnection)
        page.set_reading(False)
        page.yield_turn()
        page.resume_turn()
        assert not page.browser.is_reading()
        page.set_reading(True)
        assert page.browser.is_reading()


async def test_page_reads_are_counted_while_the_loop_is_crowded() -> None:
    """Otherwise thousands of pages that always have bytes to read make turns of seconds."""
    async with with_pages() as (r, _):
        browser = await r.browser()
        browser.send(request("/.fumarole/slow"))
        await browser.until(b"begun")
        (page,) = r.path.pages
        assert isinstance(page, PageConnection)
        turns = r.path.turns
        turns.crowded, left = True, turns._reads_left
        page.data_received(b"x")
        assert turns._reads_left == left - 1
