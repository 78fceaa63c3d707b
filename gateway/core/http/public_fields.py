"""Response fields that name the app's own address, as the browser must see them.

An app knows its port and the ``Host`` of the request, but neither the public port nor the scheme.
So a redirect to its own address can lead to a host that the browser cannot reach, or to plain http.
nginx rewrites such redirects, too (``proxy_redirect``). Cookies are adapted to the host of the
session, and to a frame of another site.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.core.http.cookies import framed_cookie, without_own_domain
from gateway.core.http.response_heads import ResponseFields
from shared.routes.route import Target

_URL: Final = re.compile(rb"(https?)://([^/?#]*)(.*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(rb"(\[[0-9a-f:.]+\]|[^@:\[\]]+)(?::([0-9]{0,5}))?")
_PORTS: Final = {b"http": 80, b"https": 443}
_LOOPBACK: Final = frozenset({b"localhost", b"127.0.0.1", b"0.0.0.0", b"[::1]", b"[::]"})
"""The names by which a program calls its own host."""
_LOCATION: Final = re.compile(rb"^(location:[ \t]*)([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_REFRESH: Final = re.compile(
    rb"^(refresh:[ \t]*+[0-9.]++(?:[ \t]*+[;,]|[ \t])[ \t]*+(?:url[ \t]*+=[ \t]*+)?[\"']?)"
    rb"([^\r\n\"']*)",
    re.IGNORECASE | re.MULTILINE,
)
"""The seconds, and a URL that may be named and quoted.

See HTML, "shared declarative refresh steps"."""
_SET_COOKIE: Final = re.compile(rb"^(set-cookie:[ \t]*)([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


class PublicView(msgspec.Struct, frozen=True, gc=False):
    """How a browser sees the app.

    ``host`` is the ``Host`` of its request, with the port. ``framed`` is set if the session was
    opened in a frame of another site.
    """

    scheme: str
    host: str
    target: Target
    framed: bool


def adapt_fields(fields: ResponseFields, view: PublicView) -> bytes:
    """Return the end-to-end fields of a response for the browser of *view*."""
    section = fields.end_to_end
    if fields.has_location:
        section = _LOCATION.sub(lambda found: found[1] + public_location(found[2], view), section)
    if fields.has_refresh:
        section = _REFRESH.sub(lambda found: found[1] + public_location(found[2], view), section)
    if fields.domain_cookies:
        name = view.host.partition(":")[0].lower().encode("ascii")
        cookies = (without_own_domain(value, name) for value in fields.domain_cookies)
        kept = [b"Set-Cookie: %b\r\n" % value for value in cookies if value is not None]
        section = b"".join((section, *kept))
    if not view.framed:
        return section
    return _SET_COOKIE.sub(lambda found: found[1] + framed_cookie(found[2]), section)


def public_location(value: bytes, view: PublicView) -> bytes:
    """Return a ``Location`` that the browser can follow.

    A URL of the app's own address gets the public scheme, host and port. Its own address is the
    target, a loopback name with the target's port, and the public host name, whatever its port:
    nothing else is served there. Any other value is returned unchanged.
    """
    url = _URL.fullmatch(value)
    authority = _AUTHORITY.fullmatch(url[2].lower()) if url is not None else None
    if url is None or authority is None:
        return value
    name = authority[1]
    port = int(authority[2]) if authority[2] else _PORTS[url[1].lower()]
    rest = url[3] if url[3].startswith(b"/") else b"/" + url[3]
    if name != view.host.partition(":")[0].lower().encode("ascii"):
        if port != view.target.port or name not in _LOOPBACK | {_written(view.target.host)}:
            return value
        rest = _without_base(rest, view.target.base_path.rstrip("/").encode("ascii"))
    return f"{view.scheme}://{view.host}".encode("ascii") + rest


def _written(host: str) -> bytes:
    """Return *host* as it is written in a URL."""
    return (f"[{host}]" if ":" in host else host).lower().encode("ascii", "replace")


def _without_base(path: bytes, base: bytes) -> bytes:
    """Return *path* below *base*, which the gateway prepends to the path of each request."""
    if not base or not path.startswith(base):
        return path
    rest = path[len(base) :]
    if not rest or rest[:1] in b"?#":
        return b"/" + rest
    return rest if rest.startswith(b"/") else path
