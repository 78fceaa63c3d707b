"""The certificates of the embedded cluster: one authority and three leaves."""

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS: Final = 365
_LEAVES: Final = ("apiserver", "kubelet", "client")


@dataclass(frozen=True, slots=True)
class Pki:
    """A folder with ``ca.crt`` and, for each leaf, ``<leaf>.crt`` and ``<leaf>.key``."""

    folder: Path

    @property
    def authority(self) -> bytes:
        """The path of the authority's certificate, PEM."""
        return (self.folder / "ca.crt").read_bytes()

    def pair(self, leaf: str) -> tuple[Path, Path]:
        """Return the paths of a leaf's certificate and key."""
        return self.folder / f"{leaf}.crt", self.folder / f"{leaf}.key"


def ensure_pki(folder: Path) -> Pki:
    """Return the certificates in *folder*, made if there are none. The CA's key is not kept."""
    pki = Pki(folder)
    if not (folder / "ca.crt").exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, authority = _make_authority()
        for leaf in _LEAVES:
            _write_leaf(pki, leaf, key, authority)
        # Written last: its presence means that all other files are there.
        _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    return pki


def server_context(pki: Pki, leaf: str = "apiserver", *, clients: bool = False) -> ssl.SSLContext:
    """Return a server's context; with *clients*, a client needs a certificate to connect."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pki.pair(leaf))
    if clients:
        context.load_verify_locations(cadata=pki.authority.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(pki: Pki) -> ssl.SSLContext:
    """Return the context with which the API server calls kubelets."""
    context = ssl.create_default_context(cadata=pki.authority.decode())
    context.load_cert_chain(*pki.pair("client"))
    return context


def _make_authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("embedded-cluster-ca")
    builder = _builder(name, name, key.public_key())
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)
    return key, builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _write_leaf(
    pki: Pki, leaf: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if leaf == "client" else ExtendedKeyUsageOID.SERVER_AUTH
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name(leaf), authority.subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate_path, key_path = pki.pair(leaf)
    _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    _write(
        key_path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
