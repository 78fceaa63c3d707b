"""Tests that changed certificate files are reloaded, and that the last good pair is kept."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import ssl
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from gateway import tls
from gateway.tls import Certificates, make_tls_context


class Pair:
    """A certificate and its key in separate files."""

    def __init__(self, folder: Path, serial: int = 1) -> None:
        folder.mkdir(exist_ok=True)
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.write(serial)

    def write(self, serial: int) -> None:
        """Replace both files, one after the other, each by a rename."""
        for path, data in zip((self.certificate, self.key), make_pair(serial), strict=True):
            replace(path, data)


def make_pair(
    serial: int, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None
) -> tuple[bytes, bytes]:
    """Return a certificate with *serial*, and its key."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(serial)
    made = made.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    signed = made.public_key(key.public_key()).sign(key, SHA256())
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), key.private_bytes(*plain)


def replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


def settle(certificates: Certificates) -> None:
    """Poll the files as often as they must stay unchanged after a change."""
    changed = certificates.look(False)
    certificates.look(changed)


async def serial_of(certificates: Certificates) -> int:
    """Return the serial number that a client receives in a real handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    server = await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificates.context
    )
    async with server:
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await reader.read()
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(shown).serial_number


async def test_a_new_certificate_is_loaded_once_its_files_are_stable(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    certificates = Certificates(pair.certificate, pair.key)
    assert await serial_of(certificates) == 1
    assert certificates.look(False) is False
    pair.write(2)
    assert certificates.look(False) is True  # another change may follow
    assert await serial_of(certificates) == 1
    assert certificates.look(True) is False
    assert await serial_of(certificates) == 2
    assert (certificates.reloads, certificates.failures) == (1, 0)


@pytest.mark.parametrize("bad", ["half", "other key", "empty", "gone", "no certificate"])
async def test_an_invalid_certificate_keeps_the_last_valid_one(
    tmp_path: Path, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(tmp_path)
    certificates = Certificates(pair.certificate, pair.key)
    certificate, key = make_pair(2)
    match bad:
        case "half":
            replace(pair.certificate, certificate[: len(certificate) // 2])
        case "other key":
            replace(pair.certificate, certificate)
        case "empty":
            replace(pair.key, b"")
        case "gone":
            pair.key.unlink()
        case _:
            replace(pair.certificate, key)
    settle(certificates)
    assert await serial_of(certificates) == 1
    assert (certificates.reloads, certificates.failures) == (0, 1)
    assert "the last one stays" in caplog.text
    assert key.decode().splitlines()[1] not in caplog.text
    # Once the pair is complete, it is accepted.
    pair.write(3)
    settle(certificates)
    assert await serial_of(certificates) == 3


async def test_a_certificate_load_is_retried_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    certificates = Certificates(pair.certificate, pair.key)
    pair.write(2)
    with monkeypatch.context() as patched:
        patched.setattr(tls, "load_pem_x509_certificate", no_descriptors)
        settle(certificates)
    assert (certificates.reloads, certificates.failures) == (0, 1)
    assert await serial_of(certificates) == 1
    for _ in range(60):
        assert certificates.look(False) is False
    assert (certificates.reloads, certificates.failures) == (1, 1)
    assert await serial_of(certificates) == 2
    for _ in range(61):
        certificates.look(False)
    assert (certificates.reloads, certificates.failures) == (1, 1)


def no_descriptors(_data: bytes) -> x509.Certificate:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_the_links_of_a_kubernetes_secret_are_followed(tmp_path: Path) -> None:
    for name, serial in (("..first", 1), ("..second", 2)):
        Pair(tmp_path / name, serial)
    (tmp_path / "..data").symlink_to("..first")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(Path("..data") / name)
    certificates = Certificates(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert await serial_of(certificates) == 1
    (tmp_path / "..next").symlink_to("..second")
    (tmp_path / "..next").replace(tmp_path / "..data")
    settle(certificates)
    assert await serial_of(certificates) == 2


def test_an_invalid_certificate_at_start_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.key.write_bytes(make_pair(2)[1])
    with pytest.raises(OSError, match=r"."):
        Certificates(pair.certificate, pair.key)


def test_the_file_that_is_at_fault_is_named(tmp_path: Path) -> None:
    one, two = Pair(tmp_path / "one"), Pair(tmp_path / "two")
    encrypted = tmp_path / "encrypted.key"
    secret = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    encrypted.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*secret))
    weak = Pair(tmp_path / "weak")
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for path, data in zip((weak.certificate, weak.key), make_pair(1, short), strict=True):
        replace(path, data)
    chain = tmp_path / "chain.crt"
    damaged = two.certificate.read_text().replace("MII", "MI!", 1)
    chain.write_text(one.certificate.read_text() + damaged)
    for certificate, key, why in (
        (weak.certificate, weak.key, f"OpenSSL refuses {weak.certificate} .*EE_KEY_TOO_SMALL"),
        (chain, one.key, f"{chain} holds .* a damaged one"),
        (one.certificate, two.key, f"{two.key} is not the key of {one.certificate}"),
        (one.key, one.key, f"{one.key} holds no certificate"),
        (one.certificate, one.certificate, f"{one.certificate} holds no private key"),
        (one.certificate, encrypted, f"{encrypted} is encrypted"),
    ):
        with pytest.raises(OSError, match=why):
            make_tls_context(certificate, key)


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    secret = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    pair.key.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*secret))
    program = "import sys; from pathlib import Path; from gateway.tls import make_tls_context; "
    program += "make_tls_context(Path(sys.argv[1]), Path(sys.argv[2]))"
    asked, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(pair.certificate), str(pair.key)],
            stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, timeout=30, check=False,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
        )  # fmt: skip
    finally:
        os.close(asked)
        os.close(terminal)
    assert b"is encrypted" in done.stderr
