"""Tests signing keys: read from PEM in order, without their content in errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from controller.__main__ import write_route_keys
from shared.events import Head
from shared.jose.jws import read_key_set
from shared.jose.signing_keys import public_key_set, read_signing_keys
from shared.routes.signed_table import TableSigner, TableVerifier
from tests import warm

ROOT = Path(__file__).parents[3]
KEYS = [Ed25519PrivateKey.generate() for _ in range(2)]


def pem(key: Ed25519PrivateKey, how: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how or NoEncryption())


def test_signing_keys_keep_their_order() -> None:
    read = read_signing_keys(b"# old and new\n" + pem(KEYS[0]) + b"\n" + pem(KEYS[1]))
    assert [key.private_bytes_raw() for key in read] == [k.private_bytes_raw() for k in KEYS]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"MC4CAQAwBQYDK2VwBCIEIA==",
        pem(KEYS[0]) * 2,
        pem(KEYS[0], BestAvailableEncryption(b"secret")),
        pem(KEYS[0]).replace(b"MC4", b"MC5"),
        generate_private_key(SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        b"".join(pem(Ed25519PrivateKey.generate()) for _ in range(17)),
    ],
)
def test_a_malformed_signing_key_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        read_signing_keys(text)
    secret = pem(KEYS[0]).splitlines()[1].decode()
    assert secret not in str(caught.value)


def test_the_command_writes_the_public_keys_for_gateways(tmp_path: Path) -> None:
    for number, key in enumerate(KEYS):
        (tmp_path / f"{number}.pem").write_bytes(pem(key))
    paths = [str(tmp_path / f"{number}.pem") for number in range(2)]
    command = [sys.executable, "-m", "controller", "route-keys"]
    done = warm.run([*command, *paths], cwd=ROOT, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0
    written = done.stdout.encode()
    assert json.loads(written) == public_key_set(KEYS)
    head = Head(epoch="e", seq=1, term=1, routes=0, revoked=0)
    for key in KEYS:
        text = TableSigner(key, instance="i").sign_head(head, at=1.0, floor=0.0, root=b"r")
        assert TableVerifier(read_key_set(written), instance="i").head(text).matches(head)


def test_a_malformed_key_file_ends_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")
    for name in ("nowhere.pem", "empty.pem"):
        with pytest.raises(SystemExit) as ended:
            write_route_keys([str(tmp_path / name)])
        assert ended.value.code == 2
        assert "error: " in capsys.readouterr().err
