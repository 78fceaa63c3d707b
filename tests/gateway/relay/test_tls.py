"""TLS at the gateway itself: there is no half-close, and codes and answers still arrive."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.core.frames import close_frame
from gateway.relay.listening import Listener
from shared.listening import listen
from tests.gateway.relay.harness import (
    ORIGIN,
    SID,
    SWITCH,
    Peer,
    Rig,
    answer,
    request,
    rig,
    status_of,
    upgrade,
)

LARGE = bytes(range(256)) * 8000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@asynccontextmanager
async def secured(certificate: Path) -> AsyncIterator[tuple[Rig, tuple[str, int]]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with rig() as r:
        listener = Listener(r.path, listen("127.0.0.1", 0), tls=lambda: context)
        yield r, listener.address
        listener.close()


async def connect(r: Rig, address: tuple[str, int]) -> Peer:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    peer = Peer(reader, writer)
    r.peers.append(peer)
    return peer


async def test_requests_and_answers_without_a_length(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(request("/1"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(b"one"))
        assert (await browser.answer())[1] == b"one"
        browser.send(request("/2"))
        await app.head()
        app.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        app.close()
        assert (await browser.rest()).endswith(b"until the end")


async def test_a_tunnel_ends_with_its_code(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(upgrade())
        app = await r.app.connection()
        await app.head()
        app.send(SWITCH + b"\x82\x02hi")
        assert status_of(await browser.head()) == 101
        assert await browser.exactly(4) == b"\x82\x02hi"
        browser.send(b"on its way" * 10000)
        r.world.revoke(sid=SID)
        expected = close_frame(4401, "grant revoked")
        assert await browser.exactly(len(expected)) == expected


async def test_an_app_that_closes_its_tunnel_closes_the_browsers_side(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(upgrade())
        app = await r.app.connection()
        await app.head()
        app.send(SWITCH + b"\x82\x03bye")
        app.close()
        assert (await browser.rest()).endswith(b"\x82\x03bye")
        await asyncio.sleep(0.05)
        assert len(r.live) == 0


async def test_a_refused_upload_gets_its_answer(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        fields = (f"Origin: {ORIGIN}", "Content-Length: 10000000")
        browser.send(request("/", *fields, method="POST", credential=None) + b"x" * 100000)
        assert status_of((await browser.answer())[0]) == 401


async def test_large_bodies_are_read_and_written(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        browser = await connect(r, address)
        browser.send(request("/1"))
        app = await r.app.connection()
        await app.head()
        app.send(answer(LARGE))
        assert (await browser.answer())[1] == LARGE
        sent = (f"Origin: {ORIGIN}", f"Content-Length: {len(LARGE)}")
        browser.send(request("/2", *sent, method="PUT") + LARGE)
        await app.head()
        assert await app.exactly(len(LARGE)) == LARGE
        assert r.path.pipes.open == 0
