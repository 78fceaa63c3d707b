"""Message heads as raw bytes: where one ends, its start line, its fields, or its refusal.

One expression matches a whole line and accepts only the strict form.
:mod:`gateway.core.http.fields` interprets the fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gateway.core.http.names import TOKEN

MAX_HEAD_BYTES: Final = 65536
"""Of a head without its cookies. Neighbour sessions set cookies too, so cookies have a limit of
their own."""
MAX_COOKIE_BYTES: Final = 262144
"""Of all ``Cookie`` fields of a request, names and line ends included. Cookies that nobody reads
are dropped before (:mod:`gateway.core.http.request_reader`)."""
MAX_TARGET_BYTES: Final = 16384
MAX_FIELDS: Final = 256
MAX_MEMBERS: Final = 256
"""Of a list field that is searched: it cannot name more fields than a head may have."""

IANA_METHODS: Final = frozenset(
    (
        b"ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK "
        b"MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH "
        b"PATCH POST PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT "
        b"UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL"
    ).split()
)
"""The IANA registry of methods, without the reserved names ``*`` and ``PRI``."""
_REFUSED_METHODS: Final = frozenset({b"CONNECT", b"TRACE"})
_METHODS: Final = IANA_METHODS - _REFUSED_METHODS

_TARGET = rb"[!\"$-\[\]-~]+"
_START = re.compile(rb"(" + TOKEN + rb") (" + _TARGET + rb") HTTP/1\.([01])")
_START_WITH_PATH = re.compile(
    rb"(" + TOKEN + rb") (/[!\"$-\[\]-~]{0,%d}) HTTP/1\.([01])\r\n" % (MAX_TARGET_BYTES - 1)
)
"""The usual start line: a target in origin-form, within the length limit."""
_ABSOLUTE = re.compile(rb"(https?)://([^/?]*)(.*)", re.IGNORECASE)
_DEFAULT_PORTS: Final = {b"http": b":80", b"https": b":443"}

_COOKIE_LINE = re.compile(rb"\ncookie:[^\n]*", re.IGNORECASE)
"""With the line feed before it, not the one after it: the search begins with a single character."""
_LOOK_AGAIN_BITS: Final = 14
"""A large incomplete head is measured again whenever it has grown by 16 KiB."""

_FEW_BYTES: Final = 64
"""List values up to this size are split once and then cached."""

_CR: Final = 0x0D

_FIELD: Final = re.compile(
    rb"^(" + TOKEN + rb"):[ \t]*+"
    rb"((?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*+\r\n",
    re.MULTILINE,
)
"""A field line (RFC 9112, section 5): its name, and its value without surrounding spaces."""


class HeadRefused(Exception):
    """The head must be refused; ``code`` names the refusal.

    ``reason`` says what is wrong, in words of this package alone and never of the peer.
    """

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


class StartLine(msgspec.Struct, eq=False, gc=False):
    """A start line in canonical parts; ``target`` is in origin-form.

    ``authority`` is that of a target in absolute-form, in lower case; ``default_port`` is that of
    its scheme, with the colon.
    """

    method: bytes
    target: bytes
    minor: int
    authority: bytes | None
    default_port: bytes = b""


class Provenance(NamedTuple):
    """The fields of a request that tell its origin; None for an absent field."""

    origin: bytes | None
    site: bytes | None
    mode: bytes | None
    dest: bytes | None


def find_end(buffer: bytes, seen: int = 0) -> int:
    """Return where the head in *buffer* ends, after CRLF CRLF; 0 while it is incomplete.

    A bare LF or CR is searched for first, since it could hide the end forever.

    Args:
        buffer: All bytes received so far.
        seen: How many of them an earlier call has searched.

    Raises:
        HeadRefused: ``bad_request``, ``target_too_long`` or ``head_too_large``.
    """
    end, size = search_end(buffer, seen), len(buffer)
    if size > MAX_TARGET_BYTES and (end or size >> _LOOK_AGAIN_BITS != seen >> _LOOK_AGAIN_BITS):
        _check_sizes(buffer, end or size, complete=end > 0)
    return end


def search_end(buffer: bytes, seen: int) -> int:
    """Return where the head in *buffer* ends, whatever its size; 0 while it is incomplete.

    Raises:
        HeadRefused: ``bad_request`` for a bare LF or CR after *seen*.
    """
    end = buffer.find(b"\r\n\r\n", seen - 3 if seen > 3 else 0) + 4
    if end > 3:
        return end
    # A trailing CR of the earlier read may get its LF now.
    fresh = seen - 1 if seen and buffer[seen - 1] == _CR else seen
    check_line_ends(buffer[fresh:] if fresh else buffer, complete=False)
    return 0


def check_line_ends(raw: bytes, *, complete: bool) -> None:
    """Refuse a bare CR or LF; the last byte of an incomplete head may be a CR.

    Raises:
        HeadRefused: ``bad_request``.
    """
    pairs = raw.count(b"\r\n")
    returns = raw.count(b"\r")
    if not complete and raw.endswith(b"\r"):
        returns -= 1
    if pairs != raw.count(b"\n") or pairs != returns:
        raise HeadRefused("bad_request", "a line of the head does not end with CRLF")


def _check_sizes(buffer: bytes, size: int, *, complete: bool) -> None:
    # The longest method and the version take less than 64 bytes beside the target.
    line = buffer.find(b"\r\n", 0, size)
    # Not before its end, since the fields say whether the client shows pages.
    if (complete or size >= MAX_HEAD_BYTES) and (
        size if line < 0 else line
    ) > MAX_TARGET_BYTES + 64:
        raise HeadRefused("target_too_long")
    if size < MAX_HEAD_BYTES or (complete and size == MAX_HEAD_BYTES):
        return
    if buffer.count(b"\n", 0, size) > MAX_FIELDS + 2:  # the start line, and the empty one
        raise HeadRefused("head_too_large")
    cookies = sum(len(line[0]) for line in _COOKIE_LINE.finditer(buffer, 0, size))
    others = size - cookies
    if (
        cookies > MAX_COOKIE_BYTES
        or others > MAX_HEAD_BYTES
        or (not complete and others == MAX_HEAD_BYTES)
    ):
        raise HeadRefused("head_too_large")


def find_start_line(data: bytes) -> tuple[StartLine, int] | None:
    """Return the start line of *data*, and where the fields begin.

    None if it is incomplete, in absolute-form, or refused; :func:`read_start_line` tells which.
    """
    match = _START_WITH_PATH.match(data)
    if match is None:
        return None
    method, target, minor = match.groups()
    if method not in _METHODS:
        return None
    return StartLine(method, target, 1 if minor == b"1" else 0, None), match.end()


def read_start_line(line: bytes) -> StartLine:
    """Return the parts of *line*, given without its CRLF.

    Raises:
        HeadRefused: ``bad_request``, ``method_not_allowed``, ``method_unknown`` or
            ``target_too_long``.
    """
    match = _START.fullmatch(line)
    if match is None:
        raise HeadRefused("bad_request")
    method, target, minor = match.groups()
    if method not in IANA_METHODS:
        raise HeadRefused("method_unknown")
    if method in _REFUSED_METHODS:
        raise HeadRefused("method_not_allowed")
    if len(target) > MAX_TARGET_BYTES:
        raise HeadRefused("target_too_long")
    if target[0] == 0x2F:
        return StartLine(method, target, minor[0] - 0x30, None)
    return _absolute(method, target, minor[0] - 0x30)


def _absolute(method: bytes, target: bytes, minor: int) -> StartLine:
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise HeadRefused("bad_request")
    scheme, authority, path = match.groups()
    return StartLine(
        method,
        path if path[:1] == b"/" else b"/" + path,
        minor,
        authority.lower(),
        _DEFAULT_PORTS[scheme.lower()],
    )


def split_fields(section: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and values of *section*, which ends with an empty line.

    Raises:
        HeadRefused: ``bad_request`` or ``head_too_large``.
    """
    lines = section.count(b"\n") - 1
    if lines > MAX_FIELDS:  # before any is parsed: there can be thirty thousand
        check_line_ends(section, complete=True)
        raise HeadRefused("head_too_large", f"the head has more than {MAX_FIELDS} header fields")
    pairs: list[tuple[bytes, bytes]] = _FIELD.findall(section)
    if len(pairs) != lines:
        # Each field lies within one line, so each line but the empty one must have matched.
        check_line_ends(section, complete=True)
        raise HeadRefused("bad_request", "a header field is malformed")
    return pairs


def tokens(values: Sequence[bytes]) -> frozenset[bytes]:
    """Return the members of a list field, in lower case.

    Raises:
        HeadRefused: ``bad_request`` for more than :data:`MAX_MEMBERS`.
    """
    value = values[0] if len(values) == 1 else b",".join(values)
    if len(value) <= _FEW_BYTES:
        return _few_tokens(value)
    if value.count(b",") >= MAX_MEMBERS:
        raise HeadRefused("bad_request", "a list in a header field is too long")
    return _tokens(value)


def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset(token.strip(b" \t").lower() for token in value.split(b",")) - {b""}


_few_tokens: Final = lru_cache(256)(_tokens)
"""``Connection`` and ``Upgrade`` have one of about a dozen values."""
