"""Tests a gateway's lifecycle: start without Redis, kill, SIGTERM, and grace periods."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import signal
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.contract.conftest import Serve
from tests.contract.frames import HANDSHAKE, MASK, PING, alive, encode, last_frame
from tests.contract.messages import request, response
from tests.contract.rig import running_rig
from tests.contract.streams import Stream
from tests.contract.tokens import Ed25519Key, compact
from tests.contract.upstream import App, websocket
from tests.timing import timed


def write_grant_keys(path: str, *keys: bytes) -> None:
    Path(path).write_bytes(b"".join(base64.b64encode(key) + b"\n" for key in keys))


# Starting


async def test_a_gateway_without_redis_waits_for_it(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, start=False) as rig:
        rig.beating = False
        rig.server.kill()
        await rig.process.start(ready=False)
        session = rig.make_session(await serve())
        assert (await rig.process.ops_response("/readyz")).status == 503
        assert (await rig.process.ops_response("/healthz")).status == 200
        assert (await rig.post_open(session, rig.token(session))).status in (404, 503)
        rig.bus.routes[session.sid] = json.dumps(session.route)
        rig.server.start()
        await rig.bus.rebuild()
        await rig.process.until_ready()
        assert (await rig.post_open(session, rig.token(session))).status == 303


async def test_an_empty_redis_is_not_enough_to_be_ready(tmp_path: Path) -> None:
    async with running_rig(tmp_path, start=False) as rig:
        rig.beating = False
        await rig.bus.redis.flushall()
        await rig.process.start(ready=False)
        await asyncio.sleep(0.5)
        assert (await rig.process.ops_response("/readyz")).status == 503
        await rig.bus.rebuild()
        await rig.process.until_ready()


async def test_a_gateway_speaks_tls_itself(tmp_path: Path, serve: Serve) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(7)
    made = made.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    certificate = made.public_key(key.public_key()).sign(key, SHA256())
    files = {"TLS_CERT_FILE": tmp_path / "cert.pem", "TLS_KEY_FILE": tmp_path / "key.pem"}
    files["TLS_CERT_FILE"].write_bytes(certificate.public_bytes(Encoding.PEM))
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files["TLS_KEY_FILE"].write_bytes(key.private_bytes(*plain))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    url = {"PUBLIC_URL": "https://apps.example.com"}
    async with running_rig(tmp_path, url | {n: str(f) for n, f in files.items()}) as rig:
        session = rig.make_session(await serve(websocket()))
        await rig.bus.upsert(session.sid, session.route)
        await rig.applied()
        reader, writer = await asyncio.open_connection(*rig.process.public, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        fields = [("Fumarole-Token", rig.token(session)), *HANDSHAKE]
        writer.write(request("GET", "/", host=session.host, fields=fields))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 101 ")
        writer.write(encode(PING, b"through TLS", mask=MASK))
        await asyncio.wait_for(reader.readuntil(b"through TLS"), 5)
        await rig.bus.revoke(sid=session.sid)
        assert (await asyncio.wait_for(reader.readexactly(4), 2))[2:] == (4401).to_bytes(2, "big")
        writer.close()
        # A client that speaks no TLS gets no bytes that could pass for an app's response.
        plain_text = await rig.connect()
        plain_text.send(request("GET", "/", host=session.host))
        assert b" 200 " not in await plain_text.read_to_end()


# Kill


async def test_grants_of_a_killed_gateway_stay_valid_with_its_key(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path) as rig:
        session, other = await rig.session(await serve()), await rig.session(await serve())
        cookie, revoked = await rig.opened(session), await rig.opened(other)
        used = rig.token(session)
        assert (await rig.post_open(session, used)).status == 303
        await rig.process.kill()
        await rig.bus.revoke(sid=other.sid)
        # A request that arrives before the route table waits for it, and is not refused.
        await rig.process.start(ready=False)
        fields = [("Cookie", cookie)]
        assert (await rig.get(session, fields=fields)).status == 200
        # Revocations from the downtime count, and earlier ones too.
        assert (await rig.get(other, fields=[("Cookie", revoked)])).status == 401
        assert (await rig.post_open(session, used)).status == 401
        # A new key signs, and the old key still verifies; once it is removed, it verifies no more.
        path = rig.process.settings["FUMAROLE_GATEWAY_GRANT_KEY_FILE"]
        old = base64.b64decode(Path(path).read_bytes())
        new = secrets.token_bytes(32)
        await rig.process.kill()
        write_grant_keys(path, new, old)
        await rig.process.start()
        assert (await rig.get(session, fields=fields)).status == 200
        fresh = [("Cookie", await rig.opened(session))]
        await rig.process.kill()
        write_grant_keys(path, new)
        await rig.process.start()
        assert (await rig.get(session, fields=fields)).status == 401
        assert (await rig.get(session, fields=fresh)).status == 200


# SIGTERM

BUSY_SECONDS = 15.0


async def test_on_sigterm_the_gateway_finishes_requests_in_progress(
    tmp_path: Path, serve: Serve
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(response("200 OK", "Content-Length: 10") + b"hello")
        await asyncio.sleep(0.8)
        stream.send(b"world")

    async with running_rig(tmp_path, {"DRAIN_SECONDS": "3"}) as rig:
        session = await rig.session(await serve(websocket()))
        cookie = await rig.opened(session)
        tunnels = [await rig.tunnel(session, cookie) for _ in range(8)]
        slow = await rig.session(await serve(script))
        stream = await rig.connect()
        fields = [("Cookie", await rig.opened(slow))]
        stream.send(request("GET", "/", host=slow.host, fields=fields))
        await stream.read_until(b"hello")
        start = time.monotonic()
        rig.process.signal(signal.SIGTERM)
        closes = await asyncio.gather(*(last_frame(tunnel) for tunnel in tunnels))
        assert {frame.code for frame in closes} == {1001}
        # Promised: tunnels end within half of the drain time, the process within all of it.
        assert time.monotonic() - start < 1.5 + BUSY_SECONDS
        await stream.read_until(b"world")
        assert await rig.process.wait(3.0 + BUSY_SECONDS) == 0
        assert time.monotonic() - start < 3.0 + BUSY_SECONDS
        with pytest.raises(ConnectionRefusedError):
            await rig.connect()


async def test_on_sigterm_readiness_fails_first_and_a_second_signal_exits(
    tmp_path: Path, serve: Serve
) -> None:
    settings = {"DRAIN_SECONDS": "60", "DRAIN_DELAY_SECONDS": "60"}
    async with running_rig(tmp_path, settings) as rig:
        session = await rig.session(await serve(websocket()))
        await rig.tunnel(session, await rig.opened(session))
        rig.process.signal(signal.SIGTERM)
        async with asyncio.timeout(BUSY_SECONDS):
            while (await rig.process.ops_response("/readyz")).status != 503:
                await asyncio.sleep(0.02)
        # Load balancers have not noticed the drain yet, so requests are served as before.
        assert (await rig.get(session)).status == 401
        start = time.monotonic()
        rig.process.signal(signal.SIGTERM)
        assert await rig.process.wait(BUSY_SECONDS) == 1
        assert time.monotonic() - start < BUSY_SECONDS, "and not in a minute"


# Grace periods


async def test_when_the_bus_grace_is_over_sessions_end(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"BUS_GRACE_SECONDS": "1"}) as rig:
        session = await rig.session(await serve(websocket()))
        cookie = await rig.opened(session)
        stream = await rig.tunnel(session, cookie)
        rig.beating = False
        start = time.monotonic()
        with timed(rig.process.pid) as took:
            rig.server.kill()
            await alive(stream)
            frame = await last_frame(stream, 30.0)
        assert (frame.code, frame.payload[2:]) == (1012, b"bus lost")
        # The head was valid less than two seconds before, unless the gateway had no processor.
        assert time.monotonic() - start > 4.0
        assert took.seconds < 10.0
        lost = await rig.get(session, fields=[("Cookie", cookie)])
        assert lost.status == 503
        assert lost.get("Retry-After") is not None
        rig.server.start()
        await rig.bus.rebuild()
        deadline = time.monotonic() + 5.0
        while (await rig.get(session, fields=[("Cookie", cookie)])).status != 200:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def test_while_the_controller_is_silent_no_new_connection_is_dialled(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path, {"CONTROLLER_GRACE_SECONDS": "2"}) as rig:
        app = await serve(websocket())
        session = await rig.session(app)
        cookie = await rig.opened(session)
        stream = await rig.tunnel(session, cookie)
        rig.beating = False
        # Redis is reachable: openings continue, and open connections stay.
        own = rig.own(session, cookie)
        # Each upgrade needs a new connection; a request may be sent over an open one.
        async with asyncio.timeout(10):
            while (await rig.upgrade(session, "/", own))[1].status != 503:
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        await alive(stream)
        before = len(app.connections)
        fields = [("Cookie", await rig.opened(session, sub=session.sub))]
        assert (await rig.get(session, fields=fields)).status == 503
        assert (await rig.upgrade(session, "/", own))[1].status == 503
        assert len(app.connections) == before
        await alive(stream)
        await rig.bus.beat()
        await rig.becomes(session, cookie, 200)


# Signed routes


def signed_by(key: Ed25519Key, epoch: str) -> Any:
    """Return a function that makes a compact JWS of a route."""
    return lambda route: compact(key, route | {"epoch": epoch}, typ=...)


async def test_with_route_keys_only_signed_routes_are_served(tmp_path: Path, serve: Serve) -> None:
    key, foreign = Ed25519Key("routes-1"), Ed25519Key("routes-1")
    path = tmp_path / "route-keys.json"
    path.write_text(json.dumps({"keys": [key.jwk()]}))
    async with running_rig(tmp_path, {"ROUTE_KEYS": str(path)}) as rig:
        app = await serve()
        rig.bus.sign = signed_by(key, rig.bus.epoch)
        session = await rig.session(app)
        cookie = [("Cookie", await rig.opened(session))]
        assert (await rig.get(session, fields=cookie)).status == 200
        other = rig.make_session(app)
        bad = {
            "plain": None,
            "foreign": signed_by(foreign, rig.bus.epoch),
            "another epoch": signed_by(key, "another"),
            "another session": lambda route: signed_by(key, rig.bus.epoch)(other.route),
            "unsigned": lambda route: signed_by(key, rig.bus.epoch)(route).rpartition(".")[0] + ".",
            "spoiled": lambda route: signed_by(key, rig.bus.epoch)(route)[:-6] + "AAAAAA",
        }
        before = len(app.requests)
        for name, sign in bad.items():
            rig.bus.sign = sign
            await rig.announce_change(session)
            rig.bus.sign = signed_by(key, rig.bus.epoch)
            await rig.settled()
            assert (await rig.get(session, fields=cookie)).status == 503, name
            await rig.change(session)
            assert (await rig.get(session, fields=cookie)).status == 200, name
        assert len(app.requests) == before + len(bad)
