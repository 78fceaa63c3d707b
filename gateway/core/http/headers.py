"""Heads as they are written: to the app, and to the gateway's own pages."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from gateway.core.access.decision import own_bearer
from gateway.core.http.upgrade import upgrade_fields

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What the gateway itself says of a request. ``user`` is None on public hosts.

    ``assertion`` is the signed form of who asks, None where none is made.
    """

    client_address: str
    scheme: str
    user: str | None
    assertion: str | None = None


def forwarded_fields(host: str, facts: Facts) -> bytes:
    """Return the fields that tell an app who asks, from where, and how it is called outside."""
    lines = (
        f"X-Forwarded-For: {facts.client_address}\r\n"
        f"X-Forwarded-Host: {host}\r\n"
        f"X-Forwarded-Proto: {facts.scheme}\r\n"
    )
    if facts.user is not None:
        lines += f"X-Forwarded-User: {_quoted(facts.user)}\r\n"
    if facts.assertion is not None:
        lines += f"Fumarole-Assertion: {facts.assertion}\r\n"
    return lines.encode("ascii")


@lru_cache(1024)
def _quoted(user: str) -> str:
    return quote(user, safe="")


class AppHead(msgspec.Struct, frozen=True, gc=False):
    """A head to an app but for its start line's method and target, and the fields that cross.

    ``base`` stands before the target, ``opening`` and ``ending`` around the fields.
    """

    base: bytes
    opening: bytes
    ending: bytes


NO_HEAD: Final = AppHead(b"", b"", b"")


def head_to_app(fields: Fields, forwarded: bytes, *, base: bytes, upgrade: bool) -> AppHead:
    """Return what stands around a request's own parts in the head that an app gets.

    It depends on nothing but its arguments, so that it can be kept for the next request with the
    same *fields*. ``Host`` crosses as it came, with its port.
    """
    opening = b" HTTP/1.1\r\nHost: " + fields.host.encode("ascii") + b"\r\n"
    ending = forwarded + (upgrade_fields(fields) if upgrade else framing_of(fields)) + b"\r\n"
    authorization = fields.authorization
    if authorization is not None and own_bearer(authorization) is None:
        ending = b"Authorization: %b\r\n%b" % (authorization, ending)
    return AppHead(base, opening, ending)


def framing_of(fields: Fields) -> bytes:
    """Return the field that frames a request's body, empty where there is none."""
    if fields.chunked:
        return b"Transfer-Encoding: chunked\r\n"
    return b"Content-Length: %d\r\n" % fields.length if fields.length >= 0 else b""


_OF_PAGES: Final = re.compile(
    rb"^(?:accept(?:-encoding|-language)?|cookie|origin|sec-fetch-(?:dest|mode|site)):"
    rb"[^\r\n]*\r\n",
    re.IGNORECASE | re.MULTILINE,
)
_TYPE: Final = re.compile(rb"^content-type:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_EXPECTS: Final = re.compile(rb"^expect: 100-continue\r$", re.IGNORECASE | re.MULTILINE)


def head_to_page(start: StartLine, fields: Fields, crossing: bytes) -> bytes:
    """Return the head of a request for the gateway's own pages; its answer ends the connection.

    Of *crossing* it holds what pages read, so that aiohttp finds nothing to refuse in its own words
    (a field that came twice, say). Our credentials are left out: the pages are told what they are
    good for. Nobody of HTTP/1.0 is told to go on (RFC 9110, section 10.1.1).
    """
    lines = [b"%b %b HTTP/1.1\r\nHost: " % (start.method, start.target)]
    lines += [fields.host.encode("ascii"), b"\r\n", *_OF_PAGES.findall(crossing)]
    if types := _TYPE.findall(crossing):
        lines.append(b"Content-Type: %b\r\n" % b", ".join(types))
    if start.minor and _EXPECTS.search(crossing):
        lines.append(b"Expect: 100-continue\r\n")
    return b"".join((*lines, framing_of(fields), b"Connection: close\r\n\r\n"))


def head_to_bridge(start: StartLine, fields: Fields) -> bytes:
    """Return the head of an upgrade whose frames are ours: no extension is passed on."""
    lines = [
        b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (start.target, fields.host.encode("ascii")),
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Key: %b\r\n" % (fields.socket_key or b""),
    ]
    if fields.provenance.origin is not None:
        lines.append(b"Origin: %b\r\n" % fields.provenance.origin)
    if fields.socket_protocols is not None:
        lines.append(b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocols)
    return b"".join((*lines, b"\r\n"))
