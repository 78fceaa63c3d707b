"""The relay is tested on production's loop, and in the long run also on asyncio's."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.relay import tls_records
from gateway.relay.tls_records import TlsRecords
from tests.gateway.relay.authorities import Authority


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="package")
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


@dataclass
class TlsSizes:
    """The sizes of all reads and writes of TLS's socket, in bytes."""

    read: list[int] = field(default_factory=lambda: [0])
    written: list[int] = field(default_factory=lambda: [0])


@pytest.fixture
def tls_sizes(monkeypatch: pytest.MonkeyPatch) -> TlsSizes:
    sizes = TlsSizes()

    class Watched(TlsRecords):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            write = self.write

            def watched(data: bytes) -> None:
                sizes.written.append(len(data))
                write(data)

            self.write = watched

        def buffer_updated(self, nbytes: int) -> None:
            sizes.read.append(nbytes)
            super().buffer_updated(nbytes)

    monkeypatch.setattr(tls_records, "TlsRecords", Watched)
    return sizes
