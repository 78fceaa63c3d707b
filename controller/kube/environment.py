"""What the HTTP client takes from its environment: a proxy, and nothing else, read once.

aiohttp would look for a proxy and for a ``.netrc`` with each call, each in a thread of the loop's
executor: that is dear, and hooks of plugins that hang may hold all of these threads. And where a
``.netrc`` knows the server, it refuses a call whose head has a token.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from ipaddress import ip_address, ip_network
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
    """Return the proxy for *url* by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``.

    As ``kubectl`` and all of Kubernetes read them (Go's ``httpproxy``): ``NO_PROXY`` may name
    networks, and this machine is reached without a proxy.
    """
    server, proxies = urlsplit(url), getproxies()
    if server.hostname is None or proxy_bypass(server.netloc.rpartition("@")[2]):
        return None
    if server.hostname == "localhost" or _is_within(server.hostname, proxies.get("no", "")):
        return None
    return proxies.get(server.scheme)


def _is_within(host: str, exempt: str) -> bool:
    """Say whether *host* is an address of this machine, or in a network of the list *exempt*."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for one in exempt.split(","):
        with suppress(ValueError):  # a name
            if address in ip_network(one.strip(), strict=False):
                return True
    return address.is_loopback
