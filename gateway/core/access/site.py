"""The gateway's public site: scheme, base domain, port, and the origins that follow.

Sibling sessions are same-site to a browser, so ``SameSite`` does not separate them. Instead, a
request that our cookie authenticates must come from an allowed origin (docs/session-token.md,
"Where requests may come from").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.core.http.cookies import (
    HTTP_COOKIE_NAME,
    HTTP_NOTICE_NAME,
    HTTPS_COOKIE_NAME,
    HTTPS_NOTICE_NAME,
)
from gateway.core.http.heads import Provenance
from shared.networks import Network

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_LABEL_LENGTH = 26

_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
_SAFE: Final = frozenset({b"GET", b"HEAD"})
_FRAMES: Final = frozenset({b"iframe", b"frame"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The public side of an installation.

    ``base`` is the domain below which sessions have their hosts. ``port`` is the public one.
    Origins in ``embed_origins`` may frame sessions. ``X-Forwarded-For`` is believed from
    ``trusted_proxies``. ``strict_transport`` adds ``Strict-Transport-Security`` (RFC 6797).
    """

    scheme: Literal["http", "https"]
    base: str
    port: int
    embed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    strict_transport: bool = False
    port_suffix: str = field(init=False)

    def __post_init__(self) -> None:
        default = self.port == DEFAULT_PORTS[self.scheme]
        object.__setattr__(self, "port_suffix", "" if default else f":{self.port}")

    @property
    def cookie_name(self) -> bytes:
        """The name of the cookie that holds a grant."""
        return HTTPS_COOKIE_NAME if self.scheme == "https" else HTTP_COOKIE_NAME

    @property
    def notice_name(self) -> bytes:
        """The name of the cookie that records which end its user has seen announced."""
        return HTTPS_NOTICE_NAME if self.scheme == "https" else HTTP_NOTICE_NAME

    @property
    def frame_ancestors(self) -> str:
        """The Content-Security-Policy that is added to every response of an app."""
        return " ".join(("frame-ancestors 'self'", *self.embed_origins))

    def origin_of(self, host: str) -> str:
        """Return the origin that a browser sends for pages of *host*."""
        return f"{self.scheme}://{host}{self.port_suffix}"

    def host_of(self, field_value: str) -> str | None:
        """Return the lower-case host name in a ``Host``; None if its port is not the public one.

        The port may be omitted if the public one is the scheme's default.
        """
        name, colon, port = field_value.partition(":")
        if colon:
            if not port.isascii() or not port.isdigit() or int(port[:6]) != self.port:
                return None
        elif self.port_suffix:
            return None
        return None if name.endswith(".") else name.lower()

    def sid_of(self, host: str) -> str | None:
        """Return the session identifier whose own host *host* is, by its form alone."""
        label, _, rest = host.partition(".")
        if rest != self.base or len(label) != _LABEL_LENGTH or not set(label) <= _LABEL_CHARACTERS:
            return None
        return label

    def allows_origin(
        self, host: str, provenance: Provenance, *, method: bytes, upgrade: bool
    ) -> bool:
        """Return whether a request to *host* may use the cookie.

        Args:
            host: A session's own host.
            provenance: The request's ``Origin`` and ``Sec-Fetch-*`` fields.
            method: Its method.
            upgrade: Whether it requests a WebSocket, which requires the exact ``Origin``.
        """
        own_origin = self.origin_of(host).encode()
        if upgrade:
            return provenance.origin == own_origin
        if self._is_navigation(provenance, method):
            return True
        if provenance.origin is not None:
            return provenance.origin == own_origin
        if provenance.site is not None:
            return provenance.site in _OWN_SITES
        return method in _SAFE

    def _is_navigation(self, provenance: Provenance, method: bytes) -> bool:
        if method != b"GET" or provenance.mode != b"navigate":
            return False
        if provenance.dest == b"document":
            return True
        return bool(self.embed_origins) and provenance.dest in _FRAMES
