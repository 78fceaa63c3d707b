"""Tests IPv6 (listeners, clients, apps, hosts), and certificates that change at run time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.contract.conftest import Serve
from tests.contract.messages import request
from tests.contract.rig import Rig, running_rig
from tests.contract.streams import connect
from tests.gateway.test_tls import Pair, make_pair, replace

pytestmark = pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
RELOAD_SECONDS = 10.0
NETWORKS = "127.0.0.0/8,::1/128"


async def ask(rig: Rig, address: tuple[str, int], data: bytes) -> bytes:
    """Send *data* to *address*, and return the whole response."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    response = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return response


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_one_address_takes_both_families(tmp_path: Path, serve: Serve, workers: str) -> None:
    settings = {"LISTEN": "[::]:0", "OPS_LISTEN": "[::]:0", "WORKERS": workers}
    settings |= {"UPSTREAM_NETWORKS": NETWORKS, "REFUSED_NETWORKS": ""}
    async with running_rig(tmp_path, settings, start=False) as rig:
        await rig.process.start(ready=False)
        port, ops = rig.process.public[1], rig.process.ops[1]
        # The rig asks by IPv4 from now on.
        rig.process.public, rig.process.ops = ("127.0.0.1", port), ("127.0.0.1", ops)
        await rig.process.until_ready()
        app = await serve()
        session = await rig.session(app)
        cookie = [("Cookie", await rig.opened(session)), ("Connection", "close")]
        data = request("GET", "/", host=session.host, fields=cookie)
        for host, seen in (("::1", b"::1"), ("127.0.0.1", b"127.0.0.1")):
            assert (await ask(rig, (host, port), data)).startswith(b"HTTP/1.1 200 ")
            # An IPv4 client appears as an IPv4 address, not as ::ffff:127.0.0.1.
            assert b"X-Forwarded-For: " + seen in _head(app)
        close = request("GET", "/readyz", host="ops", fields=[("Connection", "close")])
        assert (await ask(rig, ("::1", ops), close)).startswith(b"HTTP/1.1 200 ")


def _head(app: Any) -> bytes:
    return bytes(app.requests[-1].raw)


async def test_an_ipv6_address_alone_takes_no_ipv4(tmp_path: Path) -> None:
    async with running_rig(tmp_path, {"LISTEN": "[::1]:0"}, start=False) as rig:
        await rig.process.start(ready=False)
        host, port = rig.process.public
        rig.process.public = (host.strip("[]"), port)
        await rig.process.until_ready()
        session = rig.make_session()
        data = request("GET", "/", host=session.host, fields=[("Connection", "close")])
        assert (await ask(rig, ("::1", port), data)).startswith(b"HTTP/1.1 404 ")
        with pytest.raises(ConnectionRefusedError):
            await connect(("127.0.0.1", port))


async def test_an_address_in_use_fails_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        for workers in ("1", "2"):
            settings = {"LISTEN": listen, "WORKERS": workers}
            async with running_rig(tmp_path, settings, start=False) as rig:
                with pytest.raises(AssertionError, match="the gateway ended"):
                    await rig.process.start()
                assert await rig.process.wait(5.0) == 1
                assert "cannot start" in rig.process.tail()
                assert "Traceback" not in rig.process.tail()


async def test_apps_are_reachable_over_ipv6(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"UPSTREAM_NETWORKS": NETWORKS}) as rig:
        session = await rig.session(await serve(host="::1"))
        cookie = await rig.opened(session)
        assert await rig.status(session, cookie) == 200
        for outside in ("::2", "fe80::1", "::ffff:192.0.2.1", "64:ff9b::7f00:1"):
            await rig.change(session, target={"host": outside, "id": outside})
            assert await rig.status(session, cookie) == 503, outside


@pytest.mark.parametrize("host", ["[::1]", "[::1]:4180", "[", "[]:4180", "::1", "[fe80::1%25lo]"])
async def test_a_request_to_a_bare_ip_address_is_not_found(rig: Rig, host: str) -> None:
    response = await rig.ask(request("GET", "/", host=host))
    assert response.status in (400, 404), response


# TLS


async def serial_of(address: tuple[str, int]) -> int:
    """Return the serial number of the certificate on a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(*address, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(shown).serial_number


async def until_serials(rig: Rig, wanted: set[int]) -> None:
    """Wait until new connections, over all workers, see exactly these certificates."""
    deadline = asyncio.get_running_loop().time() + RELOAD_SECONDS
    while {await serial_of(rig.process.public) for _ in range(12)} != wanted:
        assert asyncio.get_running_loop().time() < deadline, rig.process.tail()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, workers: str, serve: Serve
) -> None:
    pair = Pair(tmp_path / "tls", 1)
    settings = {"PUBLIC_URL": "https://apps.example.com", "WORKERS": workers}
    settings |= {"TLS_CERT_FILE": str(pair.certificate), "TLS_KEY_FILE": str(pair.key)}
    async with running_rig(tmp_path, settings) as rig:
        session = rig.make_session(await serve())
        await rig.bus.upsert(session.sid, session.route)
        await rig.applied()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(*rig.process.public, ssl=context)
        await until_serials(rig, {1})
        pair.write(2)
        await until_serials(rig, {2})
        # Half of a pair is no pair.
        replace(pair.certificate, make_pair(3)[0])
        name = 'fumarole_gateway_tls_reloads_total{result="refused"}'
        deadline = asyncio.get_running_loop().time() + RELOAD_SECONDS
        while f"{name} {workers}.0" not in await metrics(rig):
            assert asyncio.get_running_loop().time() < deadline, await metrics(rig)
            await asyncio.sleep(0.1)
        await until_serials(rig, {2})
        # What was open before stays open.
        fields = [("Fumarole-Token", rig.token(session)), ("Connection", "close")]
        writer.write(request("GET", "/", host=session.host, fields=fields))
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def metrics(rig: Rig) -> str:
    return (await rig.process.ops_response("/metrics")).body.decode()
