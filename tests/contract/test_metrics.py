"""Tests a running gateway's metrics: counts, no label that a client can choose, the docs."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.assertion_keys import AssertionKeyFile
from gateway.bus.holder import Noted
from gateway.core.access.explain import WHY
from gateway.core.access.refusals import REFUSALS
from gateway.core.limits.overload import Step
from gateway.relay.meters import KINDS
from gateway.tls import Certificates
from tests.contract.conftest import Serve
from tests.contract.frames import MASK, PING, encode, last_frame
from tests.contract.messages import request
from tests.contract.process import ROOT
from tests.contract.rig import Rig, running_rig
from tests.contract.upstream import websocket
from tests.gateway.test_assertion_keys import pem
from tests.gateway.test_tls import Pair

DOCS = (ROOT / "docs" / "metrics.md").read_text()
CLOSED = {
    "from": {"app", "gateway"},
    "class": {f"{hundreds}xx" for hundreds in range(1, 6)},
    "code": set(REFUSALS) | {"internal_error", "other_user"},
    "result": set(REFUSALS) | {"opened", "other_user", "taken", "refused"},
    "reason": set(REFUSALS),
    "close_code": {"1001", "1012", "4401", "4410"},
    "kind": set(KINDS),
    "direction": {"up", "down"},
    "what": set(get_args(Noted)),
    "why": {"exited", "killed", "stalled"},
    "step": {step.name.lower() for step in Step},
}
COUNTS_BY_STATE = {"starting", "following", "lost", "closed", "ready", "closing", "accepting"}
# These have one series each, whose labels change: epoch and hash of the table, versions,
# generations.
INFOS = ("fumarole_gateway_table_info", "python_")


async def samples_of(rig: Rig) -> list[Sample]:
    text = (await rig.process.ops_response("/metrics")).body.decode()
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


async def value(rig: Rig, name: str, **labels: str) -> float:
    found = [one for one in await samples_of(rig) if one.name == name and one.labels == labels]
    return found[0].value if found else 0.0


async def hostile(rig: Rig) -> None:
    """Send requests with everything by which a client could try to choose label values."""
    for _ in range(20):
        odd = secrets.token_hex(8)
        host = f"{odd}.{rig.url.hostname}"
        for data in (
            request("GET", f"/{odd}", host=host),
            request(odd.upper(), "/", host=host),
            f"GET / HTTP/1.1\r\nHost: {host}\r\n{odd}: {odd}\r\nbad line\r\n\r\n".encode(),
            f"{odd}\r\n\r\n".encode(),
            request("POST", "/.fumarole/open", host=host, fields=[("Cookie", odd)], body=b"x"),
        ):
            await rig.ask(data)


async def test_no_metric_label_holds_a_client_controlled_value(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    for odd in ("x" * 200, secrets.token_hex(8)):
        await rig.post_open(session, odd)
        await rig.get(session, f"/{odd}", [("Cookie", cookie)], method="GET")
    await hostile(rig)
    before = {(one.name, *one.labels.values()) for one in await samples_of(rig)}
    for one in await samples_of(rig):
        if one.name.startswith(INFOS):
            continue
        for name, found in one.labels.items():
            if name == "le":
                continue
            known = COUNTS_BY_STATE if name == "state" else CLOSED[name]
            assert found in known, one
    # The same requests with other names add no series.
    await hostile(rig)
    assert {(one.name, *one.labels.values()) for one in await samples_of(rig)} == before


async def test_requests_bytes_and_first_bytes_are_counted(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    names = {
        ("fumarole_gateway_requests_total", "from", "app", "class", "2xx"): 1,
        ("fumarole_gateway_first_byte_seconds_count",): 1,
        ("fumarole_gateway_first_byte_seconds_bucket", "le", "60.0"): 1,
    }
    before = [await value(rig, key[0], **dict(_pairs(key[1:]))) for key in names]
    up = await value(rig, "fumarole_gateway_bytes_total", kind="http", direction="up")
    down = await value(rig, "fumarole_gateway_bytes_total", kind="http", direction="down")
    own = rig.own(session, cookie)
    response = await rig.get(session, fields=own, method="POST", body=b"x" * 5000)
    assert response.status == 200
    after = [await value(rig, key[0], **dict(_pairs(key[1:]))) for key in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == list(names.values())
    now_up = await value(rig, "fumarole_gateway_bytes_total", kind="http", direction="up")
    now_down = await value(rig, "fumarole_gateway_bytes_total", kind="http", direction="down")
    assert 5000 < now_up - up < 6000
    assert len(response.body) < now_down - down < len(response.body) + 1000


def _pairs(flat: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)


async def test_tunnels_are_counted_while_they_are_open(rig: Rig, serve: Serve) -> None:
    session, _, tunnel = await rig.opened_with_tunnel(await serve(websocket()))
    name, kind = "fumarole_gateway_open_connections", "websocket"
    assert await value(rig, name, kind=kind) == 1
    sent = encode(PING, b"a" * 100, mask=MASK)
    tunnel.send(sent)
    await tunnel.read_until(b"a" * 100)
    up = await value(rig, "fumarole_gateway_bytes_total", kind=kind, direction="up")
    down = await value(rig, "fumarole_gateway_bytes_total", kind=kind, direction="down")
    assert up >= len(sent)
    assert down >= 100
    ends = await value(rig, "fumarole_gateway_ends_total", close_code="4410")
    await rig.bus.remove(session.sid)
    await last_frame(tunnel)
    assert await value(rig, "fumarole_gateway_ends_total", close_code="4410") == ends + 1
    for _ in range(100):
        if await value(rig, name, kind=kind) == 0:
            break
        await asyncio.sleep(0.02)
    assert await value(rig, name, kind=kind) == 0


async def test_openings_are_counted_by_result(rig: Rig) -> None:
    session = await rig.session()
    token = rig.token(session)
    name = "fumarole_gateway_opens_total"
    before = [await value(rig, name, result=one) for one in ("opened", "token_spent")]
    for _ in range(2):
        await rig.post_open(session, token)
    after = [await value(rig, name, result=one) for one in ("opened", "token_spent")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]


async def test_failing_apps_are_counted(rig: Rig) -> None:
    session = await rig.session()  # nothing listens at its target
    cookie = await rig.opened(session)
    name = "fumarole_gateway_upstream_failures_total"
    before = await value(rig, name, reason="app_unreachable")
    assert await rig.status(session, cookie) == 502
    assert await value(rig, name, reason="app_unreachable") == before + 1


async def test_metrics_used_by_alerts_start_at_zero(tmp_path: Path) -> None:
    """Prometheus sees no rise in a series that begins with its first event."""
    groups = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())["groups"]
    rules = " ".join(rule["expr"] for rule in groups[0]["rules"])
    awaited = set(re.findall(r'(?:increase|rate)\((\w+)(?:\{(\w+)="(\w+)"\})?\[', rules))
    # The alert on app failures uses a ratio, and some settings bring metrics of their own.
    others = ("upstream_failures", "tls_", "assertion_", "worker_")
    async with running_rig(tmp_path) as rig:
        there = {(one.name, *one.labels.items()) for one in await samples_of(rig)}
    for name, label, wanted in awaited:
        if not name.removeprefix("fumarole_gateway_").startswith(others):
            assert (name, (label, wanted)) in there if label else (name,) in there


async def test_the_docs_list_every_metric_and_no_other(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    (tmp_path / "assertion.pem").write_bytes(pem())
    # Metrics that exist only with these settings.
    asked_for = (
        Certificates(pair.certificate, pair.key),
        AssertionKeyFile(tmp_path / "assertion.pem", issuer="http://localhost"),
    )
    exported = {s.name for one in asked_for for metric in one.collect() for s in metric.samples}
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        text = (await rig.process.ops_response("/metrics")).body.decode()
    for family in text_string_to_metric_families(text):
        if family.name.startswith("fumarole_"):
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            exported.add(family.name.removesuffix(suffix) + suffix)
    listed = re.findall(r"^\| `(fumarole_gateway_\w+)` \|", DOCS, re.MULTILINE)
    assert sorted(listed) == sorted(exported)
    for alert in re.findall(r"fumarole_gateway_\w+", DOCS):
        assert alert in exported, alert


def test_the_docs_list_every_reason_why_a_host_is_not_served() -> None:
    table = DOCS[DOCS.index("| `why` | means |") :]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) - {"why"} == set(WHY)


def test_the_docs_name_only_label_values_that_exist() -> None:
    rows = re.findall(r"^\| `fumarole_gateway_\w+` \| `(\w+)` \| (.*) \|$", DOCS, re.MULTILINE)
    named = {(label, one) for label, text in rows for one in re.findall(r"`(\w+)`", text)}
    assert ("reason", "app_timeout") in named
    for label, one in sorted(named):
        assert one in CLOSED.get(label, {one}) | set(CLOSED), (label, one)
