"""An address with too many refusals gets 429; admitted requests never do."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from ipaddress import ip_network

import pytest

from gateway.core.access.site import Site
from gateway.core.limits.values import Limits
from tests.gateway.relay.harness import (
    BASE,
    COOKIE,
    PORT,
    Peer,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
)

FEW = Limits(address_refusals_per_second=1)
"""Ten at once."""
PUBLIC = {"hosts": [f"{'a' * 26}.{BASE}", "demo.example.org"], "public": True}


async def refused(browser: Peer, *fields: str, credential: str | None = None) -> tuple[bytes, str]:
    """Send a request; return the head of the refusal and its code."""
    browser.send(request("/", *fields, credential=credential))
    head, body = await browser.answer()
    return head, code_of(body)


async def draw(r: Rig, browser: Peer, count: int, *fields: str) -> None:
    """Be refused that many times."""
    for _ in range(count):
        head, code = await refused(browser, *fields)
        assert (status_of(head), code) == (401, "no_credential")


async def test_after_a_burst_of_refusals_an_address_gets_429_and_is_disconnected() -> None:
    async with rig(limits=FEW) as r:
        browser = await r.browser()
        await draw(r, browser, 10)
        head, code = await refused(browser)
        assert (status_of(head), code) == (429, "too_many_refusals")
        assert b"\r\nRetry-After: 1\r\n" in head
        assert b"\r\nConnection: close\r\n" in head
        assert await browser.rest() == b""
        again = await r.browser()
        assert (await refused(again))[1] == "too_many_refusals"
        assert r.path.meters.refusals["too_many_refusals"] == 2


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(credential="Cookie: fumarole=bad"), 401),
        (request("/", "Origin: https://evil.example", method="POST"), 403),
        (request(host=f"{'z' * 26}.{BASE}:{PORT}"), 404),
    ],
)
async def test_401_403_and_404_count_and_a_valid_request_is_still_served(
    raw: bytes, status: int
) -> None:
    async with rig(limits=FEW) as r:
        for _ in range(10):
            assert (await r.ask(raw))[0] == status
        assert (await r.ask(raw))[0] == 429
        browser, app, _ = await r.joined(request())
        app.send(answer())
        assert status_of((await browser.answer())[0]) == 200


async def test_admitted_requests_and_refusals_of_apps_do_not_count() -> None:
    async with rig(limits=FEW, route_changes=PUBLIC) as r:
        link = request(host=f"demo.example.org:{PORT}", credential=None)
        for raw in (request(), link):
            browser, app, _ = await r.joined(raw)
            app.send(answer(status="404 Not Found"))
            assert status_of((await browser.answer())[0]) == 404
            for _ in range(30):
                browser.send(raw)
                await app.head()
                app.send(answer(status="404 Not Found"))
                assert status_of((await browser.answer())[0]) == 404
        await draw(r, await r.browser(), 10)


async def test_behind_a_trusted_proxy_each_client_is_counted_separately() -> None:
    site = Site(scheme="http", base=BASE, port=PORT, trusted_proxies=(ip_network("127.0.0.0/8"),))
    async with rig(limits=FEW, site=site) as r:
        for client in ("192.0.2.1", "2001:db8::1"):
            browser = await r.browser()
            await draw(r, browser, 10, f"X-Forwarded-For: {client}")
            head, _ = await refused(browser, f"X-Forwarded-For: {client}")
            assert status_of(head) == 429
        browser = await r.browser()
        assert (await refused(browser, "X-Forwarded-For: 2001:db8::ffff"))[1] == "too_many_refusals"


@pytest.mark.parametrize(
    "raw",
    [
        request(credential=None),
        request(host="elsewhere.example", credential=None),
        request("/" + "x" * 20_000),
        request("/", method="BREW", credential=f"Cookie: {COOKIE}"),
        b"nonsense\r\n\r\n",
        request("/", "X-Large: " + "x" * 70_000),
    ],
)
async def test_refusals_have_a_date(raw: bytes) -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(raw)
        head, _ = await browser.answer()
        date = head.lower().partition(b"\r\ndate: ")[2].partition(b"\r\n")[0]
        assert parsedate_to_datetime(date.decode()).tzinfo is not None
