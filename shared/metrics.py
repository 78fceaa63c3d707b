"""The operators' view of a process: health, readiness and Prometheus metrics.

Served on a listener of its own, which is not for the public. Each process has its own registry,
passed in: nothing is registered at import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shared.listening import listen

Readiness = Callable[[], Sequence[str]]
"""Returns why this process is not ready: nothing when it is."""


def make_registry() -> CollectorRegistry:
    """Return a registry that measures the process itself."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def make_ops_app(
    registry: CollectorRegistry,
    readiness: Readiness,
    routes: Sequence[web.RouteDef] = (),
    *,
    measure: Callable[[], Awaitable[None]] | None = None,
) -> web.Application:
    """Return the application of the ops listener.

    ``/healthz`` answers as long as the process does; ``/readyz`` is 503 with the reasons while
    there are any; ``/metrics`` is the Prometheus text format, after *measure* has returned;
    *routes* are added.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_request: web.Request) -> web.Response:
        reasons = list(readiness())
        return web.json_response(
            {"status": "not ready" if reasons else "ok", "reasons": reasons},
            status=503 if reasons else 200,
        )

    async def metrics(_request: web.Request) -> web.Response:
        if measure is not None:
            await measure()
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    app.add_routes([web.get("/metrics", metrics), *routes])
    return app


@asynccontextmanager
async def listening(
    app: web.Application, address: tuple[str, int], *, shutdown_seconds: float = 2.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve *app* at *address*; give the address that was taken, for port 0.

    Raises:
        OSError: If the address cannot be taken.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    try:
        for sock in listen(*address):
            await web.SockSite(runner, sock).start()
        host, port = runner.addresses[0][:2]
        yield host, port
    finally:
        await runner.cleanup()
