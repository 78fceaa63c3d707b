"""Aborted large bodies leave no descriptors open."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from gateway.core.access.access_right import BUS_LOST
from gateway.relay.http.large_bodies import Splice
from tests.gateway.relay.harness import ORIGIN, Peer, Rig, request, rig
from tests.waiting import until

SIZE = 8 << 20
"""More than the sockets take at once, so that each body is under way when it breaks."""
PART = b"x" * (2 << 20)
TIMES = 5

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux")


def opened(r: Rig) -> Counter[str]:
    """Return how many descriptors of each kind are open, except for those that are kept.

    Those are unused pipes and our epolls, one of which opens when a body first takes long.
    Descriptors of other tests may close at any time, so there may be fewer than before.
    """
    kinds = Counter(map(_kind, os.listdir("/proc/self/fd")))
    kinds["pipe"] -= 2 * (r.path.pipes.open - r.path.pipes.lent)
    for ours in (r.path.closer.hangups, r.path.readiness):
        kinds["anon_inode"] -= ours._epoll is not None
    return kinds


def _kind(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0]
    except FileNotFoundError:  # the one by which the folder is read
        return ""


def splices(r: Rig) -> list[Splice]:
    return [s for e in r.connections for s in (e.upload, e.download) if s is not None]


async def under_way(r: Rig, *, up: bool) -> tuple[Peer, Peer]:
    """Return a browser and an app with a spliced body that waits for its sink."""
    if up:
        head = request("/", f"Origin: {ORIGIN}", f"Content-Length: {SIZE}", method="PUT")
    else:
        head = request("/")
    browser, app, _ = await r.joined(head)
    source, sink = (browser, app) if up else (app, browser)
    sink.stall()
    if not up:
        source.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
    source.send(PART)
    await until(lambda: bool(splices(r)))
    return browser, app


@pytest.mark.parametrize("up", [True, False], ids=["upload", "download"])
@pytest.mark.parametrize("how", ["browser resets", "app resets", "revoked", "both close"])
async def test_malformed_bodies_leak_no_descriptor(up: bool, how: str) -> None:
    async with rig() as r:

        async def break_one() -> None:
            browser, app = await under_way(r, up=up)
            if how == "browser resets":
                browser.reset()
            elif how == "app resets":
                app.reset()
            elif how == "revoked":
                r.path.live.end_all(BUS_LOST)
            for peer in (browser, app):
                peer.writer.transport.abort()
            await until(lambda: r.path.open == 0 and not len(r.path.readiness))

        await break_one()  # the first body has the loop's spare opened
        before = opened(r)
        for _ in range(TIMES):
            await break_one()
        await until(lambda: opened(r) <= before)
        assert r.path.pipes.lent == 0
