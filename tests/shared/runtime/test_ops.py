"""Tests the ops listener: health, readiness with reasons, and metrics."""

from __future__ import annotations

import aiohttp
from aiohttp import web
from prometheus_client import Counter

from shared.runtime.listeners import listening
from shared.runtime.ops import make_ops_app, make_registry


async def test_the_ops_listener_reports_health_readiness_and_metrics() -> None:
    registry = make_registry()
    Counter("fumarole_test", "Counted in a test.", registry=registry).inc()
    reasons, faults, degraded = ["no route table yet"], list[str](), list[str]()

    async def extra(_request: web.Request) -> web.Response:
        return web.Response(text="extra")

    app = make_ops_app(
        registry,
        lambda: reasons,
        [web.get("/debug/x", extra)],
        health=lambda: faults,
        degraded=lambda: degraded,
    )
    async with (
        listening(app, ("127.0.0.1", 0)) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as client,
    ):

        async def get(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        assert (await get("/healthz"))[0] == 200
        status, text = await get("/readyz")
        assert status == 503
        assert "no route table yet" in text
        reasons.clear()
        assert (await get("/readyz"))[0] == 200
        degraded.append("no Redis")
        status, text = await get("/readyz")
        assert (status, "degraded" in text, "no Redis" in text) == (200, True, True)
        faults.append("it stands still")
        status, text = await get("/healthz")
        assert (status, "it stands still" in text) == (503, True)
        status, text = await get("/metrics")
        assert "fumarole_test_total 1.0" in text
        assert "process_cpu_seconds_total" in text
        assert await get("/debug/x") == (200, "extra")
