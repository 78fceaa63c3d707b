"""Envoy, bare and with ``jwt_authn`` on a cookie, with its cache of verified tokens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from benchmarks.peers import PLAIN, Certificate, Ground, Peer, Proxy, free_port, proxy_of, template
from benchmarks.requests import Visitor

_TYPE = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
_FILTER = """\
          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": %s
              providers:
                orchestrator:
                  issuer: https://orchestrator.example.com
                  from_cookies: [session]
                  forward: false
                  local_jwks: { inline_string: '%s' }
                  jwt_cache_config: { jwt_cache_size: 4096 }
              rules:
              - match: { prefix: "/" }
                requires: { provider_name: orchestrator }"""

_TLS_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
_TLS = """\
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": %s
          common_tls_context:
            alpn_protocols: [http/1.1]
            tls_certificates:
            - certificate_chain: { filename: "%s" }
              private_key: { filename: "%s" }"""


@asynccontextmanager
async def _start(
    name: str,
    ground: Ground,
    authorise: str,
    visitors: tuple[Visitor, ...],
    certificate: Certificate | None = None,
) -> AsyncIterator[Proxy]:
    port = free_port()
    tls = "" if certificate is None else _TLS % (_TLS_TYPE, certificate.chain, certificate.key)
    config = template("envoy.yaml", ground, port=port, authorise=authorise, tls=tls)
    command = [ground.programs.found["envoy"], "-c", str(config), "--concurrency", "1"]
    command += ["--disable-hot-restart", "--log-level", "error"]
    async with proxy_of(name, ground, command, port, visitors) as proxy:
        yield proxy


def _bare(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    return _start("envoy", ground, "", PLAIN)


def start_tls(ground: Ground, certificate: Certificate) -> AbstractAsyncContextManager[Proxy]:
    """Start an Envoy that ends TLS."""
    return _start("envoy", ground, "", PLAIN, certificate)


def _with_jwt(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    key = generate_private_key(SECP256R1())
    public = json.loads(ECAlgorithm.to_jwk(key.public_key()))
    keys = json.dumps({"keys": [public | {"kid": "k1", "alg": "ES256", "use": "sig"}]})
    claims = {"iss": "https://orchestrator.example.com", "sub": "ada", "exp": time.time() + 86400}
    token = jwt.encode(claims, key, algorithm="ES256", headers={"kid": "k1"})
    visitors = (Visitor(PLAIN[0].host, f"session={token}"),)
    return _start("envoy-jwt", ground, _FILTER % (_TYPE, keys), visitors)


BARE = Peer(name="envoy", label="Envoy", program="envoy", start=_bare, grows=True)
WITH_JWT = Peer(
    name="envoy-jwt",
    label="Envoy, `jwt_authn`",
    program="envoy",
    start=_with_jwt,
    authorises=True,
    notes="ES256 from a cookie, verified tokens cached",
)
