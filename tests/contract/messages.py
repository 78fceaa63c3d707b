"""Reads and writes HTTP/1.1 messages strictly: any deviation from HTTP fails the test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.contract.streams import DEADLINE_SECONDS, Source

Fields = Sequence[tuple[str, str]]
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[^\x00-\x08\x0a-\x1f\x7f]*?))[ \t]*")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2}) ([^\r\n]*)")
_REQUEST_LINE = re.compile(rb"([A-Z-]+) ([^ ]+) HTTP/1\.1")


@dataclass(frozen=True, kw_only=True)
class Message:
    """A head and its body; ``raw`` holds the head's bytes as received."""

    raw: bytes
    fields: Fields
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """Return the values of every field *name*, in order."""
        return [value for field, value in self.fields if field.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """Return the value of the only field *name*, or None if it is absent."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    def names(self) -> set[str]:
        """Return the names of all fields, in lower case."""
        return {name.lower() for name, _ in self.fields}


@dataclass(frozen=True, kw_only=True)
class Request(Message):
    """A request that an app received."""

    method: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Response(Message):
    """A response that a client received."""

    minor: int
    status: int
    reason: str

    def json(self) -> Any:
        """Return the body, whose Content-Type must be JSON."""
        kind = self.get("Content-Type") or ""
        assert kind.partition(";")[0].strip() == "application/json", kind
        return json.loads(self.body)


def request(
    method: str,
    target: str,
    *,
    host: str | None,
    fields: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    version: str = "HTTP/1.1",
) -> bytes:
    """Return a request; with a *body*, its length is added."""
    lines = [f"{method} {target} {version}"]
    lines += [f"Host: {host}"] if host is not None else []
    lines += [f"{name}: {value}" for name, value in fields]
    lines += [f"Content-Length: {len(body)}"] if body is not None else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def response(status: str, *fields: str, body: bytes | None = None) -> bytes:
    """Return an app's response such as ``200 OK``; with a *body*, its length is added."""
    length = [] if body is None else [f"Content-Length: {len(body)}"]
    lines = [f"HTTP/1.1 {status}", *fields, *length, "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


async def read_response(
    stream: Source, method: str = "GET", seconds: float = DEADLINE_SECONDS
) -> Response:
    """Return the next response to *method*; 1xx responses are returned as such."""
    raw = await stream.read_until(b"\r\n\r\n", seconds)
    start, fields = _head(raw)
    match = _STATUS_LINE.fullmatch(start)
    assert match is not None, f"no status line: {start!r}"
    status = int(match[2])
    bodiless = method == "HEAD" or status < 200 or status in (204, 304)
    body = b"" if bodiless else await _body(stream, fields, to_end=True, seconds=seconds)
    return Response(
        raw=raw,
        fields=fields,
        body=body,
        minor=int(match[1]),
        status=status,
        reason=match[3].decode("latin-1"),
    )


async def read_request_head(stream: Source, seconds: float = DEADLINE_SECONDS) -> Request:
    """Return the next request without its body."""
    raw = await stream.read_until(b"\r\n\r\n", seconds)
    start, fields = _head(raw)
    match = _REQUEST_LINE.fullmatch(start)
    assert match is not None, f"no request line: {start!r}"
    method, target = match[1].decode(), match[2].decode("latin-1")
    return Request(raw=raw, fields=fields, method=method, target=target)


async def read_request(stream: Source, seconds: float = DEADLINE_SECONDS) -> Request:
    """Return the next request with its body."""
    head = await read_request_head(stream, seconds)
    body = await _body(stream, head.fields, to_end=False, seconds=seconds)
    return Request(
        raw=head.raw, fields=head.fields, method=head.method, target=head.target, body=body
    )


def _head(raw: bytes) -> tuple[bytes, Fields]:
    start, *lines = raw[:-4].split(b"\r\n")
    fields = []
    for line in lines:
        match = _FIELD.fullmatch(line)
        assert match is not None, f"no header field: {line!r}"
        fields.append((match[1].decode(), match[2].decode("latin-1")))
    return start, fields


async def _body(stream: Source, fields: Fields, *, to_end: bool, seconds: float) -> bytes:
    coding = [value for name, value in fields if name.lower() == "transfer-encoding"]
    length = [value for name, value in fields if name.lower() == "content-length"]
    assert len(coding) + len(length) <= 1, f"framed twice: {fields}"
    if coding:
        assert coding == ["chunked"]
        return await read_chunks(stream, seconds)
    if length:
        assert re.fullmatch("[0-9]+", length[0]), length
        return await stream.read_exactly(int(length[0]), seconds)
    return await stream.read_to_end(seconds) if to_end else b""


async def read_chunks(stream: Source, seconds: float = DEADLINE_SECONDS) -> bytes:
    """Return a chunked body, which must have neither chunk extensions nor trailers."""
    body = bytearray()
    while True:
        line = await stream.read_until(b"\r\n", seconds)
        assert re.fullmatch(rb"[0-9a-fA-F]{1,16}\r\n", line), f"no chunk size: {line!r}"
        size = int(line, 16)
        body += await stream.read_exactly(size, seconds)
        assert await stream.read_exactly(2, seconds) == b"\r\n"
        if not size:
            return bytes(body)
