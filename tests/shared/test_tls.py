"""Tests the TLS contexts of clients."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from shared.tls import make_client_tls
from tests.gateway.relay.authorities import Authority


@pytest.mark.usefixtures("strict_by_default")
@pytest.mark.parametrize("named", [True, False])
def test_certificate_and_name_are_verified_but_not_optional_extensions(
    named: bool, tmp_path: Path
) -> None:
    assert ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT
    context = make_client_tls(Authority(tmp_path, "ours").path if named else None)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_named_authorities_replace_the_systems_authorities(tmp_path: Path) -> None:
    context = make_client_tls(Authority(tmp_path, "ours").path)
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "ours"),),)]
