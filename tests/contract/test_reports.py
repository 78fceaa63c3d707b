"""Tests the reports of a gateway about itself and its sessions; it works without a reader."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.frames import MASK, encode
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.test_terminal import Hub, attached, hub, terminal  # noqa: F401  # a fixture
from tests.contract.test_vnc import KEY, UPDATE_REQUEST, desktop
from tests.contract.upstream import friendly, websocket

WAIT_SECONDS = 30.0
PREFIX = "fumarole:{exam}"


async def activity(rig: Rig, session: Session) -> list[dict[str, Any]]:
    """Return each gateway process' part of the reports."""
    found = await rig.bus.redis.hgetall(f"{PREFIX}:activity:{session.sid}")
    return [json.loads(part) for part in found.values()]


async def until(
    rig: Rig, session: Session, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return the part of the one process that saw the session, once *wanted* accepts it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        parts = await activity(rig, session)
        if len(parts) == 1 and wanted(parts[0]):
            return parts[0]
        assert time.monotonic() < deadline, parts
        await asyncio.sleep(0.1)


async def test_every_worker_writes_a_report_to_redis(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session, own = await rig.entered(await serve(friendly), target={"port": 1})
        assert (await rig.get(session, fields=own)).status == 502
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            keys = [key async for key in rig.bus.redis.scan_iter(match=f"{PREFIX}:gateway:*")]
            reports = [json.loads(await rig.bus.redis.get(key) or "{}") for key in keys]
            if len(reports) == 2 and any(one.get("failing") for one in reports):
                break
            assert time.monotonic() < deadline, reports
            await asyncio.sleep(0.1)
        for key in keys:
            assert 0 < await rig.bus.redis.ttl(key) <= 10
        for one in reports:
            assert (one["epoch"], one["seq"]) == (rig.bus.epoch, rig.bus.seq)
            assert one["version"]
            assert one["lag_seconds"] >= 0
        (failing,) = [one["failing"] for one in reports if one["failing"]]
        assert failing[session.sid]["code"] == "app_unreachable"
        # A client that asks why a session is unusable must not be sent to a gateway that has ended.
        rig.process.signal(signal.SIGTERM)
        assert await rig.process.wait(WAIT_SECONDS) == 0
        assert [key async for key in rig.bus.redis.scan_iter(match=f"{PREFIX}:gateway:*")] == []


async def test_a_terminals_users_and_input_are_reported(rig: Rig, hub: Hub) -> None:  # noqa: F811
    session = await terminal(rig, hub)
    pipe = await attached(rig, session, sub="ada")
    report = await until(rig, session, lambda one: one["subs"] == ["ada"])
    assert report["last_input_at"] is None
    pipe.write(json.dumps({"type": "resize", "cols": 80, "rows": 24}).encode(), opcode=frames.TEXT)
    pipe.write(b"ls\n")
    await hub.until_heard(b"ls\n")
    report = await until(rig, session, lambda one: one["last_input_at"] is not None)
    assert report["last_input_at"] % 10 == 0
    assert 0 <= time.time() - report["last_input_at"] < 10 + WAIT_SECONDS
    assert report["bytes_in"] > 0
    assert 3000 < await rig.bus.redis.ttl(f"{PREFIX}:activity:{session.sid}") <= 3600
    await hub.attached[-1].send(b"file\n")
    await until(rig, session, lambda one: one["last_output_at"] is not None)
    pipe.stream.close()
    await until(rig, session, lambda one: one["subs"] == [])


async def test_a_viewer_is_reported_connected_without_input(rig: Rig, hub: Hub) -> None:  # noqa: F811
    session = await terminal(rig, hub)
    pipe = await attached(rig, session, sub="eve", mode="view")
    pipe.write(b"rm -rf\n")
    await hub.attached[-1].send(b"hello\n")
    report = await until(rig, session, lambda one: one["last_output_at"] is not None)
    assert (report["subs"], report["last_input_at"]) == (["eve"], None)


async def test_desktop_keys_count_as_input_and_screen_updates_do_not(
    rig: Rig, serve: Serve
) -> None:
    pipe, server, session = await desktop(rig, serve, sub="ada")
    report = await until(rig, session, lambda one: one["subs"] == ["ada"])
    before = report["last_input_at"]
    pipe.write(UPDATE_REQUEST)
    server.send(b"\x02")
    report = await until(rig, session, lambda one: one["last_output_at"] is not None)
    assert report["last_input_at"] == before is None
    pipe.write(UPDATE_REQUEST + KEY)
    await until(rig, session, lambda one: one["last_input_at"] is not None)


@pytest.mark.parametrize(
    ("method", "target", "fields", "counts"),
    [
        ("GET", "/api/kernels", (), False),
        ("POST", "/api/kernels", (), True),
        ("POST", "/api/metrics?no_track_activity=1", (), False),
        ("GET", "/", (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")), True),
    ],
)
async def test_background_polling_by_an_app_is_not_counted_as_input(
    rig: Rig,
    serve: Serve,
    method: str,
    target: str,
    fields: tuple[tuple[str, str], ...],
    counts: bool,
) -> None:
    session, own = await rig.entered(await serve(friendly))
    for _ in range(2):
        found = await rig.get(session, target, [*own, *fields], method=method)
        assert found.status == 200
    report = await until(rig, session, lambda one: one["last_output_at"] is not None)
    assert (report["last_input_at"] is not None) == counts
    assert report["bytes_out"] > 0


async def test_websocket_frames_count_as_input_and_pongs_do_not(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    tunnel = await rig.tunnel(session, await rig.opened(session, sub="ada"))
    tunnel.send(encode(frames.PONG, b"", mask=MASK))
    report = await until(rig, session, lambda one: one["subs"] == ["ada"])
    assert report["last_input_at"] is None
    tunnel.send(encode(frames.TEXT, b"hello", mask=MASK))
    await until(rig, session, lambda one: one["last_input_at"] is not None)


async def test_a_redis_that_rejects_reports_delays_no_request(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path) as rig:
        session, own = await rig.entered(await serve(friendly))
        assert (await rig.get(session, fields=own)).status == 200
        rig.beating = False
        rig.server.kill()

        async def skipped() -> float:
            text = (await rig.process.ops_response("/metrics")).body.decode()
            name = "fumarole_gateway_reports_skipped_total "
            return next(
                float(line.removeprefix(name))
                for line in text.splitlines()
                if line.startswith(name)
            )

        deadline = time.monotonic() + WAIT_SECONDS
        while await skipped() < 2:
            assert time.monotonic() < deadline
            assert (await rig.get(session, fields=own)).status == 200
            await asyncio.sleep(0.1)
        log = rig.process.log.read_text()
        assert log.count("cannot write reports to Redis") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_gateway_says_when_redis_is_read_but_takes_no_writes(
    tmp_path: Path, serve: Serve, workers: str
) -> None:
    async with running_rig(tmp_path, {"WORKERS": workers}) as rig:
        session, own = await rig.entered(await serve(friendly))
        await rig.bus.redis.config_set("maxmemory", "1")
        why = "reports cannot be written to Redis: Redis did not answer: it is out of memory"
        degraded = {"status": "degraded", "reasons": [why]}
        await _until_readiness_is(rig, degraded)
        assert (await rig.get(session, fields=own)).status == 200
        await rig.bus.redis.config_set("maxmemory", "0")
        await _until_readiness_is(rig, {"status": "ok", "reasons": []})


async def _until_readiness_is(rig: Rig, wanted: dict[str, Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        response = await rig.process.ops_response("/readyz")
        assert response.status == 200
        if json.loads(response.body) == wanted:
            return
        assert time.monotonic() < deadline, response.body
        await asyncio.sleep(0.1)
