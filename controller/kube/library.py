"""The parts of ``kubernetes_asyncio`` that are used: its models are not, and not imported.

Its packages import some 800 modules with their names, for a second of every start. Three of them
wait here until somebody, such as a plugin of another package, asks for one of their names. From
then on they are what they would have been.

What its HTTP client takes from the environment is a proxy, and nothing else, read once. aiohttp
would look for a proxy and for a ``.netrc`` with each call, each in a thread of the loop's executor:
that is dear, and hooks of plugins that hang may hold all of these threads. And where a ``.netrc``
knows the server, it refuses a call whose head has a token.
"""

from __future__ import annotations

import ssl
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from ipaddress import ip_address, ip_network
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

_WAITING: Final = (
    "kubernetes_asyncio",
    "kubernetes_asyncio.client",
    "kubernetes_asyncio.client.models",
)
_LOADING: Final = threading.RLock()
_ASKED: Final = frozenset(("__all__", "__version__", "__project__"))
"""The names of this form that a package may have; others are asked of every module."""


class _Waiting(ModuleType):
    """A package that is executed once a name is asked for that it does not have yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _ASKED:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOADING:  # another thread waits; what is imported meanwhile may ask for a name
            if self.__dict__.pop("_waits", False) and self.__spec__ and self.__spec__.loader:
                self.__spec__.loader.exec_module(self)
                object.__setattr__(self, "__class__", ModuleType)
            return ModuleType.__getattribute__(self, name)


def _let_wait(name: str) -> None:
    """Put a package in its place that waits, unless the whole one is there already."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    module = module_from_spec(spec)
    module.__dict__["_waits"] = True
    module.__class__ = _Waiting
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


for _name in _WAITING:
    _let_wait(_name)

# First, since the next one asks the package for it.
import kubernetes_asyncio.client.rest  # noqa: E402
from kubernetes_asyncio.client.api_client import ApiClient  # noqa: E402
from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402

# The library's own modules ask the package for these, which is to wait all the same.
vars(kubernetes_asyncio.client).update(ApiClient=ApiClient, Configuration=Configuration)
RESTClientObject = kubernetes_asyncio.client.rest.RESTClientObject

from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config  # noqa: E402

__all__ = [
    "READ_BUFFER",
    "ApiClient",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "accept_plain_authorities",
    "load_incluster_config",
    "load_kube_config",
    "proxy_for",
    "read_environment_once",
    "tls_of",
]

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


def accept_plain_authorities(context: ssl.SSLContext) -> None:
    """Have *context* accept certificates of clusters that lack what RFC 5280 asks for.

    Python 3.13 sets ``VERIFY_X509_STRICT`` by default. The authorities of EKS, of microk8s and of
    old clusters have no key identifiers or no key usage, so each connection would fail with
    ``Missing Authority Key Identifier``. Go's clients demand neither. Signature, host name and
    validity are verified all the same.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT


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
