"""nginx, bare and with ``auth_request``; the authoriser allows everything."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.peers import Certificate, Ground, Peer, Proxy, free_port, proxy_of, template


@asynccontextmanager
async def _start(
    name: str, ground: Ground, *, authorise: str = "", certificate: Certificate | None = None
) -> AsyncIterator[Proxy]:
    port = free_port()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tls = ""
    if certificate is not None:
        tls = f"ssl_certificate {certificate.chain}; ssl_certificate_key {certificate.key};"
    config = template(
        "nginx.conf",
        ground,
        port=port,
        files=files,
        # Below a sixteenth of free connections nginx closes those whose request has not come yet.
        connections=files * 5 // 4,
        authorise=authorise,
        ssl="ssl" if tls else "",
        tls=tls,
    )
    command = [ground.programs.found["nginx"], "-c", str(config), "-p", str(ground.folder)]
    # Without -e, nginx tries its compiled-in log file first and complains.
    command += ["-e", str(ground.folder / "error.log")]
    async with proxy_of(name, ground, command, port) as proxy:
        yield proxy


def _bare(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    return _start("nginx", ground)


def _with_auth(ground: Ground) -> AbstractAsyncContextManager[Proxy]:
    return _start("nginx-auth", ground, authorise="auth_request /_authorise;")


def start_tls(ground: Ground, certificate: Certificate) -> AbstractAsyncContextManager[Proxy]:
    """Start an nginx that ends TLS."""
    return _start("nginx", ground, certificate=certificate)


BARE = Peer(name="nginx", label="nginx", program="nginx", start=_bare, grows=True)
WITH_AUTH = Peer(
    name="nginx-auth",
    label="nginx, `auth_request`",
    program="nginx",
    start=_with_auth,
    authorises=True,
    notes="its authoriser answers 200 to everybody and costs the proxy's core nothing",
)
