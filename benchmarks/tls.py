"""The works over TLS, ended by each proxy with the same certificate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.peers import Certificate, Ground, Peer, Proxy, envoy, fumarole, haproxy, nginx
from benchmarks.works import DOWN, FRAMES, GET, HANDSHAKE, Work

_Start = Callable[[Ground, Certificate], AbstractAsyncContextManager[Proxy]]
_PEERS: Final[tuple[tuple[Peer, _Start], ...]] = (
    (fumarole.GATEWAY, fumarole.start_tls),
    (nginx.BARE, nginx.start_tls),
    (haproxy.BARE, haproxy.start_tls),
    (envoy.BARE, envoy.start_tls),
)
_TITLES: Final = {"handshake": "connection and WebSocket opened, and closed"}
_NAME: Final = "app.localhost"


def _over_tls(work: Work) -> Work:
    title = f"TLS: {_TITLES.get(work.name, work.title)}"
    return replace(work, name=f"tls-{work.name}", title=title, short=f"TLS, {work.short}")


WORKS: Final = tuple(_over_tls(work) for work in (GET, HANDSHAKE, FRAMES, DOWN))


def peers(certificate: Certificate) -> list[Peer]:
    """Return the peers that end TLS, all with *certificate*."""

    def started(start: _Start) -> Callable[[Ground], AbstractAsyncContextManager[Proxy]]:
        return lambda ground: start(ground, certificate)

    return [replace(peer, start=started(start)) for peer, start in _PEERS]


def make_certificate(folder: Path) -> Certificate:
    """Return a self-signed certificate on P-256, the curve that most sites use."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    paths = {}
    for part, text in {"chain": chain, "key": secret, "both": chain + secret}.items():
        paths[part] = folder / f"{part}.pem"
        paths[part].touch(mode=0o600)
        paths[part].write_bytes(text)
    return Certificate(**paths)
