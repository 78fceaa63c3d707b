"""The parts of ``kubernetes_asyncio`` that are used. Its models are not imported.

Its packages import some 800 modules, which takes a second of every start. Three of these packages
are loaded lazily here, when something such as a third-party plugin first uses one of their names.
After that they are ordinary packages.

The library reads kubeconfigs; aiohttp sends the requests. Only a proxy is taken from the
environment, once. By itself, aiohttp would look for a proxy and for a ``.netrc`` on each call, in a
thread of the loop's executor. That is expensive, and hanging hooks of plugins may occupy all of
these threads. Also, if a ``.netrc`` has an entry for the server, aiohttp refuses calls that carry a
token.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from shared.connector import Connector
from shared.tls import make_client_tls
from shared.version import VERSION

_LAZY: Final = (
    "kubernetes_asyncio",
    "kubernetes_asyncio.client",
    "kubernetes_asyncio.client.models",
)
_LOADING: Final = threading.RLock()
_DUNDERS: Final = frozenset(("__all__", "__version__", "__project__"))
"""Dunder names that a package may define; Python asks every module for others."""


class _LazyPackage(ModuleType):
    """A package that is executed when a name that it lacks is first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _DUNDERS:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOADING:  # other threads wait; imports of this thread may come back here
            if self.__dict__.pop("_is_lazy", False) and self.__spec__ and self.__spec__.loader:
                self.__spec__.loader.exec_module(self)
                object.__setattr__(self, "__class__", ModuleType)
            return ModuleType.__getattribute__(self, name)


def _make_lazy(name: str) -> None:
    """Install a lazy package, unless the package is loaded already."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    module = module_from_spec(spec)
    module.__dict__["_is_lazy"] = True
    module.__class__ = _LazyPackage
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


for _name in _LAZY:
    _make_lazy(_name)

# First, since the next import needs it as an attribute of the package.
import kubernetes_asyncio.client.rest  # noqa: E402
from kubernetes_asyncio.client.api_client import ApiClient  # noqa: E402
from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402

# The library's own modules import these names from the package, which must stay lazy.
vars(kubernetes_asyncio.client).update(ApiClient=ApiClient, Configuration=Configuration)

from kubernetes_asyncio.config import (  # noqa: E402
    ConfigException,
    kube_config,
    load_incluster_config,
    load_kube_config,
)
from kubernetes_asyncio.config.kube_config import KubeConfigMerger  # noqa: E402

__all__ = [
    "READ_BUFFER",
    "ApiClient",
    "ConfigException",
    "Configuration",
    "KubeConfigMerger",
    "forget_lost_files",
    "load_incluster_config",
    "load_kube_config",
    "make_session",
    "make_tls",
    "proxy_for",
    "remove_files_except",
]

READ_BUFFER: Final = 2**18
"""A stream with a slow reader buffers twice as much; ``watch`` assembles lines itself."""


def make_tls(configuration: Configuration) -> ssl.SSLContext:
    """Return the TLS context for the API server, with its authorities."""
    context = make_client_tls(configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def make_session(tls: ssl.SSLContext, *, limit: int) -> aiohttp.ClientSession:
    """Return a client whose connections are opened with *tls*; the kernel probes silent ones.

    It has at most *limit* connections; 0: any number.
    """
    return aiohttp.ClientSession(
        connector=Connector(limit=limit, ssl=tls, socket_factory=_make_socket),
        headers={"User-Agent": f"Fumarole/{VERSION}"},
        read_bufsize=READ_BUFFER,
    )


# As Go's and thus kubectl's connections: load balancers and NAT forget idle ones after some
# minutes, and neither side learns of it. Watches have bookmarks and shells have pings, but the
# followed log of a silent program has nothing.
_PROBES: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)
"""Options of Linux: seconds until the first probe, seconds between probes, and unanswered ones."""


def _make_socket(address: Any) -> socket.socket:
    """Return a socket for *address*, as ``getaddrinfo`` describes it."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def forget_lost_files() -> None:
    """Have the library write its files of certificates again if they were removed or changed.

    The certificates within a kubeconfig are in temporary files. A cleaner of such files removes
    them after some days, and a full disk leaves empty ones.
    """
    files = kube_config._temp_files
    for content, name in list(files.items()):
        with suppress(OSError):
            found = Path(name).read_bytes()
            if content in (str(found), found.decode(errors="replace")):
                continue
        del files[content]


def remove_files_except(names: Iterable[str | None]) -> None:
    """Remove the library's files of certificates, except those with these names.

    It makes new ones whenever a credential plugin or a kubeconfig has other certificates.
    """
    kept, files = set(names), kube_config._temp_files
    for content, name in list(files.items()):
        if name not in kept:
            with suppress(OSError):
                Path(name).unlink()
            del files[content]


def proxy_for(url: str) -> str | None:
    """Return the proxy for *url* by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``.

    These are read as ``kubectl`` and Kubernetes read them (Go's ``httpproxy``): ``NO_PROXY`` may
    contain networks, and this machine is always reached without a proxy.
    """
    server, proxies = urlsplit(url), getproxies()
    if server.hostname is None or proxy_bypass(server.netloc.rpartition("@")[2]):
        return None
    if server.hostname == "localhost" or _is_within(server.hostname, proxies.get("no", "")):
        return None
    return proxies.get(server.scheme)


def _is_within(host: str, exempt: str) -> bool:
    """Return whether *host* is an address of this machine or of a network in *exempt*."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for one in exempt.split(","):
        with suppress(ValueError):  # a name, not a network
            if address in ip_network(one.strip(), strict=False):
                return True
    return address.is_loopback
