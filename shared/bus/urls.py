"""Parses ``FUMAROLE_REDIS_URL``: servers, credentials and TLS trust.

==================================================  ============================================
``redis://user:password@host:6379/0``               one Redis
``unix://user:password@/path/of.sock``              one Redis on a Unix socket
``redis+sentinel://user:password@a,b:26379/name``   the master that Sentinels know as ``name``
``redis+cluster://user:password@a,b:6379``          the cluster node that serves the slot
==================================================  ============================================

``rediss`` instead of ``redis`` is TLS. Only the options below are accepted, although redis-py has
more: one of them turns off the verification of certificates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from shared.settings import existing_file
from shared.text import whole_number

Node: TypeAlias = tuple[str, int]
Topology: TypeAlias = Literal["one", "unix", "sentinel", "cluster"]

_AUTHORITY: Final = re.compile(r"//([^/?#]*)")
"""The authority of a URL (RFC 3986, appendix B)."""

_KINDS: Final[dict[str, Topology]] = {"": "one", "sentinel": "sentinel", "cluster": "cluster"}
_PORTS: Final = {"one": 6379, "sentinel": 26379, "cluster": 6379}
_TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The content of a URL. Its ``repr`` holds no secret.

    ``options`` are arguments of redis-py's connections, ``trust`` those of TLS (None: no TLS).
    """

    kind: Topology
    nodes: tuple[Node, ...]
    service: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]
    trust: dict[str, str] | None

    def __repr__(self) -> str:
        return f"RedisAddress({self.kind}, {self.nodes})"


def check_url(raw: str) -> str:
    """Return *raw* if it is a valid URL whose files can be read.

    Raises:
        ValueError: If not. The message does not hold the URL, which may hold a password.
        OSError: If a file cannot be read.
    """
    for file in (parse_url(raw).trust or {}).values():
        existing_file(file)
    return raw


def parse_url(raw: str) -> RedisAddress:
    """Return the content of the URL.

    Raises:
        ValueError: As :func:`check_url`.
    """
    url, authority = _split(raw)
    credentials, _, hosts = authority.rpartition("@")
    scheme, _, suffix = url.scheme.partition("+")
    trust, sentinel, options = _options(url.query)
    _check_options(trust, sentinel, secured=scheme == "rediss", sentinels=suffix == "sentinel")
    user, _, password = credentials.partition(":")
    options |= {"username": unquote(user)} if user else {}
    options |= {"password": unquote(password)} if password else {}
    if url.scheme == "unix":
        return _socket(url, hosts, options)
    if scheme not in ("redis", "rediss") or suffix not in _KINDS:
        raise ValueError(
            "not a redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// URL"
        )
    kind = _KINDS[suffix]
    nodes = tuple(_node(host, _PORTS[kind]) for host in hosts.split(",") if host)
    if not nodes or (kind == "one" and len(nodes) > 1):
        raise ValueError("the URL names no node, or several nodes of a single Redis")
    service, database = _path(kind, url.path)
    if database is not None:
        options["db"] = database
    return RedisAddress(
        kind, nodes, service, options, sentinel, trust if scheme == "rediss" else None
    )


def _split(raw: str) -> tuple[SplitResult, str]:
    """Return the URL without its authority, and the authority.

    ``urlsplit`` is not given the authority: newer Pythons refuse several addresses in brackets.
    It drops line ends, for example that of a file which became a Secret.
    """
    text = re.sub(r"[\t\r\n]", "", raw)
    found = _AUTHORITY.search(text)
    return urlsplit(_AUTHORITY.sub("//", text, count=1)), found[1] if found else ""


def _check_options(
    trust: dict[str, str], sentinel: dict[str, Any], *, secured: bool, sentinels: bool
) -> None:
    """Refuse options without effect: with ``redis://`` a TLS option would not encrypt anything."""
    if trust and not secured:
        raise ValueError("an ssl_ option needs TLS: a rediss:// URL")
    if "ssl_keyfile" in trust and "ssl_certfile" not in trust:
        raise ValueError("the option ssl_keyfile needs ssl_certfile")
    if sentinel and not sentinels:
        raise ValueError("a sentinel_ option needs a redis+sentinel:// or rediss+sentinel:// URL")


def _socket(url: SplitResult, host: str, options: dict[str, Any]) -> RedisAddress:
    if host or not url.path:
        raise ValueError("the URL names no path: unix://user:password@/path/of.sock")
    return RedisAddress("unix", (), "", options | {"path": unquote(url.path)}, {}, None)


def _path(kind: Topology, path: str) -> tuple[str, int | None]:
    """Return the service and the database in a URL's path."""
    first, _, second = path.strip("/").partition("/")
    if kind == "cluster":
        if first:
            raise ValueError("a Redis Cluster has no databases, so its URL must have no path")
        return "", None
    if kind == "one":
        return "", _number(first) if first else None
    if not first:
        raise ValueError("the URL names no service: redis+sentinel://host/service")
    return first, _number(second or "0")


def _options(query: str) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return the options of TLS, of the Sentinels, and all others."""
    trust: dict[str, str] = {}
    sentinel: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in parse_qsl(query):
        if name in _TLS_OPTIONS:
            trust[name] = value
        elif name in _SENTINEL_OPTIONS:
            sentinel[name.removeprefix("sentinel_")] = value
        elif name == "db":
            others["db"] = _number(value)
        else:
            raise ValueError("the URL has an unknown option")
    return trust, sentinel, others


def _number(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ValueError("the database in the URL is no number")
    return number


def _node(text: str, port: int) -> Node:
    host, colon, given = text.rpartition(":")
    if not colon or given.endswith("]"):
        host, given = text, str(port)
    number = whole_number(given, most=65535)
    if not number:
        raise ValueError("the port of a node is no port number")
    return unquote(host).removeprefix("[").removesuffix("]"), number
