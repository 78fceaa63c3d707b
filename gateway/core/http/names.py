"""The meaning of each header field name to the gateway, decided once for each name.

An app that speaks CGI or WSGI folds ``X_Forwarded_User``, ``X.Forwarded.User`` and sometimes
``X#Forwarded#User`` into the name that it trusts. A name is therefore compared case-insensitively
and with ``-`` in place of every other non-alphanumeric character.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""The characters of names and methods (RFC 9110, section 5.6.2)."""

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 64


class Meaning(IntEnum):
    """What the gateway does with a field."""

    PASS = 0
    """Forwarded unchanged."""
    DROP = 1
    """Never forwarded: a hop-by-hop field, or one that apps trust because only gateways may send
    it."""

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
    LOCATION = 25
    REFRESH = 26


HOP_BY_HOP: Final = frozenset(
    (
        b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization "
        b"proxy-authentication-info te trailer transfer-encoding upgrade http2-settings"
    ).split()
)
"""RFC 9110, section 7.6.1, and the additions of older proxies."""

_SPOOFABLE: Final = (
    *(b"forwarded", b"via", b"x-real-ip", b"x-forwarded", b"proxy"),
    *(b"remote-user", b"x-remote-user", b"x-auth-request", b"x-webauth", b"fumarole-assertion"),
)
"""Fields that only a gateway may send. ``Proxy`` becomes HTTP_PROXY in a CGI program; apps behind
other proxies trust ``Remote-User`` and similar fields."""
_SPOOFABLE_PREFIXES: Final = (b"x-forwarded-", b"x-auth-request-", b"x-webauth-")

_COMMANDS: Final = (
    *(b"x-accel-redirect", b"x-litespeed-location", b"x-reproxy-url", b"x-sendfile"),
    *(b"x-sendfile2", b"x-lighttpd-send-file", b"x-lighttpd-send-tempfile", b"x-accel-expires"),
)
"""Response fields that tell the proxy in front of us to send something else: nginx and LiteSpeed an
internal location, H2O another URL, Apache and lighttpd a file. ``X-Accel-Expires`` has nginx cache
a private response. The app is user code."""
_COMMAND_PREFIXES: Final = (b"x-envoy-",)
"""Envoy's: ``X-Envoy-Immediate-Health-Check-Fail`` of one app would take the gateway out of service
for all users."""

_REQUEST: Final[Mapping[bytes, Meaning]] = {
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

_RESPONSE: Final[Mapping[bytes, Meaning]] = {
    b"content-length": Meaning.LENGTH,
    b"transfer-encoding": Meaning.CODING,
    b"connection": Meaning.CONNECTION,
    b"upgrade": Meaning.UPGRADE,
    b"set-cookie": Meaning.SET_COOKIE,
    b"cache-control": Meaning.CACHE_CONTROL,
    b"date": Meaning.DATE,
    b"location": Meaning.LOCATION,
    b"refresh": Meaning.REFRESH,
    b"clear-site-data": Meaning.DROP,
    b"alt-svc": Meaning.DROP,
    # Browsers keep these for the whole host. They would report requests of later visitors, also
    # those of the host's next owner, or have requests wait for the app, also those for our pages.
    b"nel": Meaning.DROP,
    b"report-to": Meaning.DROP,
    b"secure-session-registration": Meaning.DROP,
    # It would extend a worker's scope to the gateway's own pages, where tokens are posted.
    b"service-worker-allowed": Meaning.DROP,
    b"sec-websocket-accept": Meaning.SOCKET_ACCEPT,
    b"sec-websocket-extensions": Meaning.SOCKET_EXTENSIONS,
    b"sec-websocket-protocol": Meaning.SOCKET_PROTOCOL,
}

NEVER_NOMINATED: Final = frozenset(
    name for name in _REQUEST if name not in HOP_BY_HOP or name == b"transfer-encoding"
) - {b"accept", b"x-forwarded-for"}
"""Fields that authenticate or frame a request: ``Connection`` must not nominate them."""

_FOLD: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


def fold(name: bytes) -> bytes:
    """Return *name* as a CGI-like app reads it."""
    return name.lower().translate(_FOLD)


class Names:
    """Looks up the meaning of names and caches the results, within limits."""

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
        """The cached meanings by exact spelling, for a first lookup."""

    def meaning(self, name: bytes) -> int:
        """Return the :class:`Meaning` of *name*, as an integer."""
        known = self.known.get(name)
        if known is None:
            known = self._decide(name)
            if len(name) <= _LONGEST_REMEMBERED:
                if len(self.known) >= _REMEMBERED:
                    self.known.clear()  # otherwise an early flood of names would fill it for good
                self.known[name] = known
        return known

    def _decide(self, name: bytes) -> int:
        folded = fold(name)
        meaning = self._of_fold.get(folded)
        if meaning is None:
            return int(Meaning.DROP if folded.startswith(self._prefixes) else Meaning.PASS)
        # Another spelling of a known field has no effect and is not forwarded.
        return int(meaning if folded == name.lower() else Meaning.DROP)


def request_names() -> Names:
    """Return the meanings of request fields."""
    return Names(_REQUEST, dropped=(*HOP_BY_HOP, *_SPOOFABLE))


def response_names() -> Names:
    """Return the meanings of response fields.

    ``X-Forwarded-*`` in a response deceives nobody, but nobody needs it either.
    """
    prefixes = (*_SPOOFABLE_PREFIXES, *_COMMAND_PREFIXES)
    return Names(_RESPONSE, dropped=(*HOP_BY_HOP, *_COMMANDS), prefixes=prefixes)
