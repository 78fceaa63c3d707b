"""What every header field name means to the gateway, decided once per name.

An app that speaks CGI or WSGI folds ``X_Forwarded_User``, ``X.Forwarded.User`` and sometimes
``X#Forwarded#User`` into the name that it trusts, so a name is judged by how it reads with ``-``
for whatever is neither letter nor digit, in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""What names and methods are made of (RFC 9110, section 5.6.2)."""

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 64


class Meaning(IntEnum):
    """What is done with a field."""

    PASS = 0
    """Crosses as it is."""
    DROP = 1
    """Never crosses: hop-by-hop, or a field by which apps take us at our word."""

    HOST = 2
    LENGTH = 3
    CODING = 4
    CONNECTION = 5
    UPGRADE = 6
    COOKIE = 7
    AUTHORIZATION = 8
    TOKEN = 9
    ORIGIN = 10
    FETCH_SITE = 11
    FETCH_MODE = 12
    FETCH_DEST = 13
    ACCEPT = 14
    FORWARDED_FOR = 15
    SOCKET_KEY = 16
    SOCKET_VERSION = 17
    SOCKET_EXTENSIONS = 18
    SOCKET_PROTOCOL = 19
    SERVICE_WORKER = 23

    SET_COOKIE = 20
    CACHE_CONTROL = 21
    SOCKET_ACCEPT = 22
    DATE = 24


HOP_BY_HOP: Final = frozenset(
    (
        b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization "
        b"proxy-authentication-info te trailer transfer-encoding upgrade http2-settings"
    ).split()
)
"""RFC 9110, section 7.6.1, and what older proxies made of it."""

_SPOOFABLE: Final = (
    *(b"forwarded", b"via", b"x-real-ip", b"x-forwarded", b"proxy"),
    *(b"remote-user", b"x-remote-user", b"x-auth-request", b"x-webauth", b"fumarole-assertion"),
)
"""Fields that only a gateway may write. ``Proxy`` becomes HTTP_PROXY in a CGI program; apps that
stand behind other proxies trust ``Remote-User`` and the like."""
_SPOOFABLE_PREFIXES: Final = (b"x-forwarded-", b"x-auth-request-", b"x-webauth-")

_COMMANDS: Final = (b"x-accel-redirect", b"x-sendfile", b"x-lighttpd-send-file")
"""Fields of a response by which what stands in front of us is told what to send instead: nginx its
own internal locations, Apache and lighttpd files. The app is user code."""
_COMMAND_PREFIXES: Final = (b"x-envoy-",)
"""Of Envoy: ``X-Envoy-Immediate-Health-Check-Fail`` of one app would take a gateway out of service
for everybody."""

_REQUEST: Final[Mapping[bytes, Meaning]] = MappingProxyType(
    {
        b"host": Meaning.HOST,
        b"content-length": Meaning.LENGTH,
        b"transfer-encoding": Meaning.CODING,
        b"connection": Meaning.CONNECTION,
        b"upgrade": Meaning.UPGRADE,
        b"cookie": Meaning.COOKIE,
        b"authorization": Meaning.AUTHORIZATION,
        b"fumarole-token": Meaning.TOKEN,
        b"origin": Meaning.ORIGIN,
        b"sec-fetch-site": Meaning.FETCH_SITE,
        b"sec-fetch-mode": Meaning.FETCH_MODE,
        b"sec-fetch-dest": Meaning.FETCH_DEST,
        b"accept": Meaning.ACCEPT,
        b"x-forwarded-for": Meaning.FORWARDED_FOR,
        b"sec-websocket-key": Meaning.SOCKET_KEY,
        b"sec-websocket-version": Meaning.SOCKET_VERSION,
        b"sec-websocket-extensions": Meaning.SOCKET_EXTENSIONS,
        b"sec-websocket-protocol": Meaning.SOCKET_PROTOCOL,
        b"service-worker": Meaning.SERVICE_WORKER,
    }
)

_RESPONSE: Final[Mapping[bytes, Meaning]] = MappingProxyType(
    {
        b"content-length": Meaning.LENGTH,
        b"transfer-encoding": Meaning.CODING,
        b"connection": Meaning.CONNECTION,
        b"upgrade": Meaning.UPGRADE,
        b"set-cookie": Meaning.SET_COOKIE,
        b"cache-control": Meaning.CACHE_CONTROL,
        b"date": Meaning.DATE,
        b"clear-site-data": Meaning.DROP,
        b"alt-svc": Meaning.DROP,
        # It would widen a worker's scope over our own pages, where links are opened.
        b"service-worker-allowed": Meaning.DROP,
        b"sec-websocket-accept": Meaning.SOCKET_ACCEPT,
        b"sec-websocket-extensions": Meaning.SOCKET_EXTENSIONS,
        b"sec-websocket-protocol": Meaning.SOCKET_PROTOCOL,
    }
)

NEVER_NOMINATED: Final = frozenset(
    name for name in _REQUEST if name not in HOP_BY_HOP or name == b"transfer-encoding"
) - {b"accept", b"x-forwarded-for"}
"""What a request is authenticated or framed by: ``Connection`` may not name it."""

_FOLD: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


def fold(name: bytes) -> bytes:
    """Return *name* as a CGI-like app would read it."""
    return name.lower().translate(_FOLD)


class Names:
    """Looks up meanings; remembers what it was asked, within bounds."""

    __slots__ = ("_of_fold", "_prefixes", "known")

    def __init__(
        self,
        table: Mapping[bytes, Meaning],
        *,
        dropped: Iterable[bytes],
        prefixes: tuple[bytes, ...] = _SPOOFABLE_PREFIXES,
    ) -> None:
        self._prefixes = prefixes
        self._of_fold = dict.fromkeys(dropped, Meaning.DROP) | dict(table)
        self.known: dict[bytes, int] = {}
        """Meanings of exact spellings that were asked for before, for a first look."""

    def meaning(self, name: bytes) -> int:
        """Return the :class:`Meaning` of *name*, as an integer."""
        known = self.known.get(name)
        if known is None:
            known = self._decide(name)
            if len(name) <= _LONGEST_REMEMBERED:
                if len(self.known) >= _REMEMBERED:
                    self.known.clear()  # or whoever sends many first would keep out all others
                self.known[name] = known
        return known

    def _decide(self, name: bytes) -> int:
        folded = fold(name)
        meaning = self._of_fold.get(folded)
        if meaning is None:
            return int(Meaning.DROP if folded.startswith(self._prefixes) else Meaning.PASS)
        # Another spelling of a field that means something counts for nothing, and goes nowhere.
        return int(meaning if folded == name.lower() else Meaning.DROP)


def request_names() -> Names:
    """Return the meanings of a request's fields."""
    return Names(_REQUEST, dropped=(*HOP_BY_HOP, *_SPOOFABLE))


def response_names() -> Names:
    """Return the meanings of a response's fields.

    The app's own ``X-Forwarded-*`` in a response fool nobody, but nobody needs them either.
    """
    prefixes = (*_SPOOFABLE_PREFIXES, *_COMMAND_PREFIXES)
    return Names(_RESPONSE, dropped=(*HOP_BY_HOP, *_COMMANDS), prefixes=prefixes)
