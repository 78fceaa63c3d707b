"""Small readers, independent of the gateway's, that show what its peers would understand.

They accept one reading of each message, the strict one, and fail on everything else. They must be
able to read everything that the gateway forwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COOKIE: Final = b"fumarole"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE = re.compile(
    rb"(" + _TOKEN + rb"): ((?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?)"
)
_REQUEST = re.compile(rb"(" + _TOKEN + rb") (/[!-~]*) HTTP/1\.1")
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) ([\t -~\x80-\xff]*)")


@dataclass(frozen=True)
class Head:
    """A canonical head: its start line's parts, and its fields in order."""

    start: tuple[bytes, ...]
    fields: tuple[tuple[bytes, bytes], ...]

    def all(self, name: bytes) -> list[bytes]:
        """Return the values of *name*."""
        return [value for key, value in self.fields if key.lower() == name]

    @property
    def framing(self) -> tuple[bytes, ...]:
        """The one framing of its body; empty for none."""
        lengths, codings = self.all(b"content-length"), self.all(b"transfer-encoding")
        assert len(lengths) + len(codings) <= 1, self.fields
        assert all(re.fullmatch(rb"[0-9]+", length) for length in lengths), lengths
        assert codings in ([], [b"chunked"]), codings
        return (*lengths, *codings)


def read_request(raw: bytes) -> Head:
    """Return the request head in *raw*."""
    return _read(raw, _REQUEST)


def read_answer(raw: bytes) -> Head:
    """Return the response head in *raw*."""
    return _read(raw, _STATUS)


def _read(raw: bytes, start: re.Pattern[bytes]) -> Head:
    first, *lines = raw.split(b"\r\n")
    assert lines[-2:] == [b"", b""], raw[-40:]
    match = start.fullmatch(first)
    assert match is not None, first
    fields = []
    for line in lines[:-2]:
        field = _LINE.fullmatch(line)
        assert field is not None, line
        fields.append((field[1], field[2]))
    return Head(match.groups(), tuple(fields))


def read_chunks(raw: bytes) -> bytes:
    """Return the body of canonical chunks, which must be complete."""
    body = b""
    while True:
        line, _, raw = raw.partition(b"\r\n")
        assert re.fullmatch(rb"[1-9a-f][0-9a-f]*|0", line), line
        size = int(line, 16)
        if not size:
            assert raw == b"\r\n", raw
            return body
        assert raw[size : size + 2] == b"\r\n", raw[:20]
        body, raw = body + raw[:size], raw[size + 2 :]


def cookie_names(value: bytes) -> list[bytes]:
    """Return the names in a ``Cookie`` as a lenient app would find them."""
    pairs = [pair.partition(b"=") for pair in value.split(b";")]
    return [name.strip(b" \t\r\n\f\v") for name, equals, _ in pairs if equals]


def cgi_name(name: bytes) -> bytes:
    """Return *name* as a CGI-like app folds it."""
    return re.sub(rb"[^0-9a-z]", b"_", name.lower())


ALLOWED_IN_VIEW: Mapping[int, int] = {0: 20, 3: 10, 150: 10}
"""Messages of one size that an onlooker may send, by type; 2 and 248 have sizes of their own."""


def viewer_messages(data: bytes) -> list[bytes]:
    """Return the RFB messages in *data*; a viewer must be allowed to send each of them."""
    messages = []
    while data:
        kind = data[0]
        if kind in ALLOWED_IN_VIEW:
            size = ALLOWED_IN_VIEW[kind]
        elif kind == 2:
            size = 4 + 4 * int.from_bytes(data[2:4], "big")
        elif kind == 248:
            size = 9 + data[8]
        else:
            raise AssertionError(f"an onlooker sent message {kind}")
        assert len(data) >= size, (kind, size, len(data))
        messages.append(data[:size])
        data = data[size:]
    return messages
