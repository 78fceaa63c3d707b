"""The requests of browsers: the same fields for every proxy, as Chrome sends to a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MARK: Final = "@@@@@@@@"
"""Stands for a number that differs in every request."""
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
_AGENT: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/140.0.0.0 Safari/537.36"
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """One browser: the host of its requests, and the cookies for that host."""

    host: str
    cookie: str
    scheme: str = "http"

    @property
    def origin(self) -> str:
        """The origin of the page that makes the request."""
        return f"{self.scheme}://{self.host}"


def get_head(visitor: Visitor, path: str, *, varied: bool = False) -> bytes:
    """Return a GET with 13 fields; with *varied*, two of them differ in every request."""
    number = MARK if varied else "5f3c0a1b"
    return _head(
        f"GET {path}?n={MARK} HTTP/1.1",
        [
            f"Host: {visitor.host}",
            "Connection: keep-alive",
            'sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24"',
            f"User-Agent: {_AGENT}",
            "Accept: application/json, text/plain, */*",
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Mode: cors",
            "Sec-Fetch-Dest: empty",
            f"Referer: {visitor.origin}/lab/tree/work?reset={number}",
            "Accept-Encoding: gzip, deflate, br, zstd",
            "Accept-Language: en-GB,en;q=0.9,da;q=0.8",
            f"Cookie: {visitor.cookie}; _xsrf=2|7c2a|9d1f",
            f'If-None-Match: W/"{number}"',
        ],
    )


def put_head(visitor: Visitor, path: str, size: int) -> bytes:
    """Return an upload of *size* bytes."""
    return _head(
        f"PUT {path} HTTP/1.1",
        [
            f"Host: {visitor.host}",
            "Connection: keep-alive",
            f"User-Agent: {_AGENT}",
            "Accept: */*",
            f"Origin: {visitor.origin}",
            "Content-Type: application/octet-stream",
            f"Content-Length: {size}",
            f"Cookie: {visitor.cookie}; _xsrf=2|7c2a|9d1f",
        ],
    )


def socket_head(visitor: Visitor, path: str, subprotocol: str | None = None) -> bytes:
    """Return an upgrade to a WebSocket."""
    fields = [
        f"Host: {visitor.host}",
        "Connection: Upgrade",
        "Pragma: no-cache",
        "Cache-Control: no-cache",
        f"User-Agent: {_AGENT}",
        "Upgrade: websocket",
        f"Origin: {visitor.origin}",
        "Sec-WebSocket-Version: 13",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: en-GB,en;q=0.9,da;q=0.8",
        f"Cookie: {visitor.cookie}; _xsrf=2|7c2a|9d1f",
        f"Sec-WebSocket-Key: {KEY}",
    ]
    if subprotocol is not None:
        fields.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return _head(f"GET {path} HTTP/1.1", fields)


def _head(start: str, fields: Iterable[str]) -> bytes:
    return "\r\n".join((start, *fields, "", "")).encode("ascii")
