"""What the HTTP client takes from its environment: a proxy, and nothing else, read once.

aiohttp would look for a proxy and for a ``.netrc`` with each call, each in a thread of the loop's
executor: that is dear, and hooks of plugins that hang may hold all of these threads. And where a
``.netrc`` knows the server, it refuses a call whose head has a token.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

READ_BUFFER: Final = 2**18
"""Twice as much is held for a stream whose reader is slow, such as of a log. The library's own is
larger, for lines that are whole objects: those are put together elsewhere here."""


def read_environment_once(rest: Any, host: str) -> None:
    """Have *rest*, the library's client, call *host* by the proxy that there is for it now.

    A kubeconfig's own ``proxy-url`` counts before the environment's.
    """
    connector = rest.pool_manager.connector
    rest.pool_manager.detach()
    rest.pool_manager = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BUFFER)
    rest.proxy = rest.proxy or proxy_for(host)


def tls_of(rest: Any) -> ssl.SSLContext:
    """Return the context by which *rest*, the library's client, opens connections."""
    context: ssl.SSLContext = rest.pool_manager.connector._ssl
    return context


def proxy_for(url: str) -> str | None:
    """Return the proxy for *url* by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``."""
    server = urlsplit(url)
    if server.hostname is None or proxy_bypass(server.netloc.rpartition("@")[2]):
        return None
    return getproxies().get(server.scheme)
