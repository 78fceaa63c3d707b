from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gateway.relay.dial import DialFailed
from tests.gateway.relay.harness import Rig, answer, code_of, request, rig, status_of


def dial_by(r: Rig, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., Any]) -> None:
    monkeypatch.setattr(r.path.dialler, "connect", begin)


async def never(*_arguments: object) -> None:
    await asyncio.Event().wait()


async def test_a_dial_past_its_deadline_is_504_and_keeps_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as r:
        r.path.dialler.dial_seconds = 0.1
        with monkeypatch.context() as patched:
            dial_by(r, patched, never)
            browser = await r.browser()
            browser.send(request())
            head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (504, "app_timeout")
        assert r.path.meters.upstream_failures["app_timeout"] == 1
        await asyncio.sleep(0)
        assert len(r.path.background_tasks) == 0
        browser.send(request("/again"))
        app = await r.app.connection()
        assert (await app.head()).startswith(b"GET /again")
        app.send(answer())
        assert status_of((await browser.answer())[0]) == 200


async def test_no_dial_starts_for_a_client_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        dial_by(r, monkeypatch, never)
        browser = await r.browser()
        browser.send(request())
        while not len(r.path.background_tasks):
            await asyncio.sleep(0)
        browser.reset()
        while len(r.path.background_tasks):
            await asyncio.sleep(0)
        assert not r.path.connections


async def test_a_dialled_connection_without_a_waiting_request_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dial ends at the same moment as the browser leaves."""
    async with rig() as r:
        begin = r.path.dialler.connect

        def leaving(target: Any, factory: Callable[[], Any]) -> Any:
            upstream, (connection,) = factory(), r.connections
            on_connected = upstream.on_connected

            def abandoned(one: Any) -> None:
                connection.abandon()
                on_connected(one)

            upstream.on_connected = abandoned
            return begin(target, factory)

        dial_by(r, monkeypatch, leaving)
        browser = await r.browser()
        browser.send(request())
        app = await r.app.connection()
        assert await app.gone() == b""
        assert r.connections[0].upstream is None


async def test_a_target_that_is_forbidden_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_arguments: object) -> None:
        raise DialFailed("target_forbidden")

    async with rig() as r:
        dial_by(r, monkeypatch, forbidden)
        browser = await r.browser()
        for _ in range(2):
            browser.send(request())
            assert code_of((await browser.answer())[1]) == "target_forbidden"
        assert r.path.meters.upstream_failures["target_forbidden"] == 2


async def test_an_unexpected_dial_error_resets_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_arguments: object) -> None:
        raise RuntimeError("oops")

    async with rig() as r:
        dial_by(r, monkeypatch, broken)
        browser = await r.browser()
        with caplog.at_level(logging.ERROR):
            browser.send(request())
            with pytest.raises(ConnectionResetError):
                await browser.rest()
        assert "a dial failed" in caplog.text
