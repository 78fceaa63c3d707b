"""The ops listener: health, readiness and Prometheus metrics of a process.

It is a separate listener, which is not for the public. The metrics registry is passed in; nothing
is registered at import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Readiness = Callable[[], Sequence[str]]
"""Returns the reasons why this process is not ready; nothing if it is."""


def make_registry() -> CollectorRegistry:
    """Return a registry with the metrics of the process itself."""
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
    health: Readiness = tuple,
    degraded: Readiness = tuple,
) -> web.Application:
    """Return the application of the ops listener.

    - ``/healthz`` is 200, or 503 with the reasons of *health* why the process should be restarted.
    - ``/readyz`` is 503 with the reasons of *readiness*, else 200 with those of *degraded*.
    - ``/metrics`` is the Prometheus text format, after *measure* has returned.
    - *routes* are added.
    """

    async def healthz(_request: web.Request) -> web.Response:
        faults = list(health())
        if faults:
            return web.json_response({"status": "failed", "reasons": faults}, status=503)
        return web.json_response({"status": "ok"})

    async def readyz(_request: web.Request) -> web.Response:
        reasons, others = list(readiness()), list(degraded())
        status = "not ready" if reasons else "degraded" if others else "ok"
        return web.json_response(
            {"status": status, "reasons": reasons + others}, status=503 if reasons else 200
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
