"""Starts a real Redis behind TLS, with certificates of an authority that the test makes."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from deploy.local.redis import redis_programs, write_redis_setup
from tests.redis_nodes import free_ports
from tests.waiting import until


@functools.cache
def tls_redis_program() -> str | None:
    """Return a server that was built with TLS; the server of the wheel may lack TLS."""
    for program in redis_programs():
        # Any server ends with an error here. A server without TLS fails earlier, at the unknown
        # option.
        command = [program, "--port", "0", "--tls-port", "0", "--dir", "/nonexistent"]
        said = subprocess.run(command, capture_output=True, text=True)
        if "tls-port" not in said.stdout + said.stderr:
            return program
    return None


class Authority:
    """A certificate authority; all its files are in *folder*."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(folder.name)
        made = _builder(self._name, self._name, self._key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def make(self, host: str) -> tuple[Path, Path]:
        """Return a certificate for *host*, an address or a name, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(host)] if host.isalpha() else [x509.IPAddress(ip_address(host))]
        made = _builder(_name(host), self._name, key)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, private = self._folder / f"{host}.crt", self._folder / f"{host}.key"
        certificate.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, private


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    made = made.serial_number(x509.random_serial_number()).public_key(key.public_key())
    return made.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))


@dataclass(frozen=True)
class TlsRedis:
    """A running server, and the connection data of its users."""

    port: int
    authority: Authority
    passwords: dict[str, str]

    def url(
        self,
        user: str,
        *,
        host: str = "127.0.0.1",
        authority: Authority | None = None,
        password: str = "",
        pair: tuple[Path, Path] | None = None,
    ) -> str:
        """Return the URL of *user*, which trusts *authority* and may present a certificate."""
        trusted = (authority or self.authority).file
        shown = "" if pair is None else f"&ssl_certfile={pair[0]}&ssl_keyfile={pair[1]}"
        password = password or self.passwords[user]
        return f"rediss://{user}:{password}@{host}:{self.port}/0?ssl_ca_certs={trusted}{shown}"


@asynccontextmanager
async def tls_redis(
    folder: Path, instance: str, *, clients_show: bool = False
) -> AsyncIterator[TlsRedis]:
    """Run a server on 127.0.0.1 with the production users and without a plain port."""
    program = tls_redis_program()
    assert program is not None
    authority = Authority(folder / "good")
    certificate, key = authority.make("127.0.0.1")
    setup = write_redis_setup(folder, instance)
    (port,) = free_ports(1)
    lines = [
        "bind 127.0.0.1",
        f"tls-port {port}",
        f"tls-cert-file {certificate}",
        f"tls-key-file {key}",
        f"tls-ca-cert-file {authority.file}",
        f"tls-auth-clients {'yes' if clients_show else 'no'}",
        "",
    ]
    configuration = folder / "redis.conf"
    configuration.write_text(configuration.read_text() + "\n".join(lines))
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen([program, str(configuration)], stdout=log, stderr=log)
    try:
        # The last log line before the server accepts commands.
        await until(lambda: "eady to accept connections" in (folder / "redis.log").read_text(), 20)
        urls = {user: urlsplit(url) for user, url in setup.urls.items()}
        yield TlsRedis(port, authority, {user: url.password or "" for user, url in urls.items()})
    finally:
        process.kill()
        process.wait()
