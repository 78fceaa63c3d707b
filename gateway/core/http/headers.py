"""Canonical request heads, for apps and for the gateway's own pages."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.core.http.fields import Fields
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.upgrade import upgrade_fields
from shared.tokens import SESSION_AUDIENCE, names_audience


class ForwardedInfo(msgspec.Struct, frozen=True, gc=False):
    """What the gateway tells the app about a request. ``user`` is None on public hosts.

    ``assertion`` is the signed assertion of the user; None if none is made.
    """

    scheme: str
    user: str | None
    assertion: str | None = None


def forwarded_fields(host: str, info: ForwardedInfo) -> bytes:
    """Return the fields that tell an app the user, and the public host and scheme."""
    lines = f"X-Forwarded-Host: {host}\r\nX-Forwarded-Proto: {info.scheme}\r\n"
    if info.user is not None:
        lines += f"X-Forwarded-User: {_quoted(info.user)}\r\n"
    if info.assertion is not None:
        lines += f"Fumarole-Assertion: {info.assertion}\r\n"
    return lines.encode("ascii")


@lru_cache(1024)
def _quoted(user: str) -> str:
    return quote(user, safe="")


class UpstreamHead(msgspec.Struct, frozen=True, gc=False):
    """The parts of an upstream request head that do not depend on the single request.

    The head is: method, space, ``path_prefix``, target, ``prefix``, end-to-end fields, ``suffix``.
    """

    path_prefix: bytes
    prefix: bytes
    suffix: bytes

    def for_client(self, address: str, key: bytes | None = None) -> UpstreamHead:
        """Return this head with the client's *address*, and with the *key* of an upgrade."""
        added = f"X-Forwarded-For: {address}\r\n".encode("ascii")
        if key is not None:
            added += b"Sec-WebSocket-Key: " + key + b"\r\n"
        return UpstreamHead(self.path_prefix, self.prefix, added + self.suffix)


NO_UPSTREAM_HEAD: Final = UpstreamHead(b"", b"", b"")


def upstream_head(fields: Fields, forwarded: bytes, *, path_prefix: bytes) -> UpstreamHead:
    """Return the constant parts of an upstream request head.

    They depend only on the arguments, so the next request with the same *fields* can reuse them.
    Client and key are added by :meth:`UpstreamHead.for_client`.
    ``Host`` is forwarded as received, with its port.
    """
    prefix = b" HTTP/1.1\r\nHost: " + fields.host.encode("ascii") + b"\r\n"
    framing = upgrade_fields(fields) if fields.websocket else framing_field(fields)
    suffix = forwarded + framing + b"\r\n"
    authorization = fields.authorization
    if authorization is not None and own_bearer(authorization) is None:
        suffix = b"Authorization: %b\r\n%b" % (authorization, suffix)
    return UpstreamHead(path_prefix, prefix, suffix)


def own_bearer(authorization: bytes | None) -> bytes | None:
    """Return the token in an ``Authorization`` that is meant for us; None if it is the app's."""
    if authorization is None:
        return None
    scheme, _, rest = authorization.replace(b"\t", b" ").partition(b" ")
    token = rest.strip(b" ")
    if scheme.lower() != b"bearer" or not token:
        return None
    return token if names_audience(token.decode("latin-1"), SESSION_AUDIENCE) else None


def framing_field(fields: Fields) -> bytes:
    """Return the field that frames a request's body; empty if it has none."""
    if fields.chunked:
        return b"Transfer-Encoding: chunked\r\n"
    return b"Content-Length: %d\r\n" % fields.length if fields.length >= 0 else b""


_PAGE_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST"})
_OF_PAGES: Final = re.compile(
    rb"^(?:accept(?:-encoding|-language)?|cookie|origin|sec-fetch-(?:dest|mode|site)):"
    rb"[^\r\n]*\r\n",
    re.IGNORECASE | re.MULTILINE,
)
_TYPE: Final = re.compile(rb"^content-type:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_EXPECTS: Final = re.compile(rb"^expect: 100-continue\r$", re.IGNORECASE | re.MULTILINE)


def page_head(request: RequestHead) -> bytes:
    """Return the head of *request* to one of our pages, whose response ends the connection.

    It contains only the fields that pages read, so that aiohttp has nothing to refuse with an error
    text of its own (such as a repeated field, or a registered method that it does not know). The
    gateway's credentials are left out: the page gets the decision instead.
    """
    start, fields, end_to_end = request.start, request.fields, request.end_to_end
    method = start.method if start.method in _PAGE_METHODS else b"OPTIONS"  # which no page has
    lines = [b"%b %b HTTP/1.1\r\nHost: " % (method, start.target)]
    lines += [fields.host.encode("ascii"), b"\r\n", *_OF_PAGES.findall(end_to_end)]
    if types := _TYPE.findall(end_to_end):
        lines.append(b"Content-Type: %b\r\n" % b", ".join(types))
    if _EXPECTS.search(end_to_end):
        lines.append(b"Expect: 100-continue\r\n")
    return b"".join((*lines, framing_field(fields), b"Connection: close\r\n\r\n"))


def bridge_head(request: RequestHead) -> bytes:
    """Return the head of *request*, an upgrade to a bridge; it offers no extension."""
    fields = request.fields
    lines = [
        b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (request.start.target, fields.host.encode("ascii")),
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Key: %b\r\n" % (fields.socket_key or b""),
    ]
    if fields.provenance.origin is not None:
        lines.append(b"Origin: %b\r\n" % fields.provenance.origin)
    if fields.socket_protocols is not None:
        lines.append(b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocols)
    return b"".join((*lines, b"\r\n"))
