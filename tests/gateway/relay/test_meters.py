from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from gateway.relay.meters import Meters
from tests.gateway.relay.harness import answer, request, rig


async def test_events_are_counted_and_exported() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        await r.ask(request(credential=None))
        browser, _ = await r.tunnel()
        r.world.revoke(sid="a" * 26)
        registry = CollectorRegistry()
        registry.register(r.path.meters)
        text = generate_latest(registry).decode()
    for line in (
        'fumarole_gateway_requests_total{class="2xx",from="app"} 1.0',
        'fumarole_gateway_refusals_total{code="no_credential"} 1.0',
        'fumarole_gateway_ends_total{close_code="4401"} 1.0',
        "fumarole_gateway_tunnels_total 1.0",
        "fumarole_gateway_connections_total 3.0",
        "fumarole_gateway_pooled ",
    ):
        assert line in text


def test_counters_start_without_samples() -> None:
    registry = CollectorRegistry()
    registry.register(Meters())
    assert 'class="5xx",from="app"} 0.0' in generate_latest(registry).decode()
