"""The field section of a request, parsed in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import ne
from typing import Final

import msgspec

from gateway.core.http.cookies import (
    FOREIGN_BYTES,
    cut_cookie,
    has_too_many_own_cookies,
    truncate_cookies,
)
from gateway.core.http.heads import HeadRefused, Provenance, StartLine, split_fields, tokens
from gateway.core.http.names import HOP_BY_HOP, NEVER_NOMINATED, Meaning, Names, request_names

MAX_LENGTH_DIGITS: Final = 18
MAX_OFFERS: Final = 32
"""Extensions, or subprotocols, of one upgrade: each is examined, and no client has so many."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?")
_AFTER_NAME = re.compile(rb": [!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?\r\n")
"""What follows a name in canonical form: a value (RFC 9110, section 5.5) without surrounding
spaces."""
_CHUNKED = re.compile(rb"^transfer-encoding:[ \t]*+chunked *+\r\n", re.IGNORECASE | re.MULTILINE)
"""The only ``Transfer-Encoding`` accepted: parsers of apps differ on one with a tab after it."""
_LENGTH = re.compile(rb"[0-9]{1,%d}" % MAX_LENGTH_DIGITS)
_SOCKET_KEY_VALUE = re.compile(rb"[A-Za-z0-9+/]{22}==")
"""Sixteen bytes in base64 (RFC 6455, section 4.1)."""


_NO_PROVENANCE: Final = Provenance(None, None, None, None)


class Fields(msgspec.Struct, eq=False, gc=False):
    """A parsed field section; immutable by convention.

    ``length`` is -1 without ``Content-Length``. ``service_worker`` is set when a browser fetches a
    service worker's script. ``valid_upgrade`` is set when the fields are those of a valid WebSocket
    upgrade.
    """

    host: str = ""
    length: int = -1
    chunked: bool = False
    close: bool = False
    upgrade_nominated: bool = False
    websocket: bool = False
    valid_upgrade: bool = False
    cookies: tuple[bytes, ...] = ()
    token: bytes | None = None
    authorization: bytes | None = None
    accept: bytes = b""
    forwarded_for: bytes | None = None
    provenance: Provenance = _NO_PROVENANCE
    service_worker: bool = False
    socket_key: bytes | None = None
    socket_version: bytes | None = None
    socket_extensions: bytes | None = None
    socket_protocols: bytes | None = None


_VALUE: Final = re.compile(rb"[!-~\x80-\xff][\t -~\x80-\xff]*+(?<![\t ])(?=\r\n)")
"""A field's value (RFC 9110, section 5.5) up to the line's end, without surrounding spaces."""


class Template:
    """Recognises field sections that differ at most in values without meaning to the gateway.

    The constant text is compared in long pieces: the cost of a request depends on its new values,
    not on its number of fields.

    Args:
        raw: A parsed section, with its empty line.
        end_to_end: Its end-to-end fields.
    """

    __slots__ = ("_crossing", "_last", "_steps")

    def __init__(self, raw: bytes, end_to_end: bytes) -> None:
        self._steps: list[tuple[bytes, bytes]] = []
        """For each value that may differ: the constant text before it, and its end-to-end part."""
        self._last = raw
        self._crossing = end_to_end

    def allow_any_value(
        self, lines: Sequence[bytes], parts: Sequence[bytes], names: Sequence[bytes], at: set[int]
    ) -> None:
        """Let the lines *at* these places have any value.

        Each must have its name in canonical form, with one space after the colon, and must be
        forwarded as a whole.

        Args:
            lines: The lines of the section, the empty one included.
            parts: The end-to-end part of each line.
            names: The names of the fields.
            at: The places of lines without meaning to the gateway.
        """
        begin, end = 0, b""
        for place in sorted(at):
            name = names[place] + b": "
            before = b"".join((end, *lines[begin:place], name))
            self._steps.append((before, b"".join((end, *parts[begin:place], name))))
            begin, end = place + 1, b"\r\n"
        self._last = b"".join((end, *lines[begin:]))
        self._crossing = b"".join((end, *parts[begin:]))

    def match(self, data: bytes, at: int) -> tuple[int, bytes] | None:
        """Return where the section at *at* in *data* ends, and its end-to-end fields.

        None if it does not match or is incomplete.
        """
        end_to_end: list[bytes] = []
        for before, crosses in self._steps:
            if not data.startswith(before, at):
                return None
            value = _VALUE.match(data, at + len(before))
            if value is None:
                return None
            end_to_end += (crosses, value[0])
            at = value.end()
        if not data.startswith(self._last, at):
            return None
        end_to_end.append(self._crossing)
        return at + len(self._last), b"".join(end_to_end)


class Section:
    """A parsed field section, kept so that only the lines that differ are parsed next time.

    - ``end_to_end`` holds the end-to-end fields in canonical form, without ``Host``, framing fields
      and the gateway's own.
    - ``parts`` holds the end-to-end part of each line, then that of all cookies together.
    - ``plain`` is set if ``Connection`` nominates no end-to-end field, so that a part depends only
      on its line.
    - ``fields`` is shared by successive sections that mean the same to the gateway.
    - ``template`` recognises most of those: the lines in ``varying`` may have any value.
    """

    __slots__ = (
        "end_to_end",
        "fields",
        "meanings",
        "names",
        "parts",
        "plain",
        "raw",
        "template",
        "varying",
    )

    end_to_end: bytes
    fields: Fields
    parts: list[bytes]
    template: Template

    def __init__(self, raw: bytes, names: list[bytes], meanings: list[int]) -> None:
        self.raw = raw
        self.names = names
        self.meanings = meanings
        self.plain = True
        self.varying: set[int] = set()


def section_from_cache(raw: bytes, fields: Fields, end_to_end: bytes) -> Section:
    """Return a section with a known meaning whose lines are not known."""
    section = Section(raw, [], [])
    section.fields, section.end_to_end = fields, end_to_end
    section.template = Template(raw, end_to_end)
    return section


class FieldReader:
    """Parses the field sections of requests.

    Args:
        cookie_name: The name of the gateway's cookie on this site.
    """

    def __init__(self, cookie_name: bytes) -> None:
        self._cookie_name = cookie_name
        self._names: Names = request_names()

    def read_section(self, raw: bytes, last: Section | None) -> Section:
        """Parse *raw*; the result does not depend on the *last* section.

        Parsing is the costliest part of a request, and browsers send nearly the same section each
        time. A line equal to the one at the same place in the last section is not parsed again. If
        every other line has the same name as before, only its value is parsed.

        Raises:
            HeadRefused: If the request must be refused.
        """
        section = self._read_differences(raw, last) if last is not None and last.names else None
        if section is None:
            section = self._read_full(raw)
        section.template = Template(raw, section.end_to_end)
        if section.varying and section.plain:
            lines = raw.splitlines(keepends=True)
            section.template.allow_any_value(lines, section.parts, section.names, section.varying)
        return section

    def _read_differences(self, raw: bytes, last: Section) -> Section | None:
        """Parse only the lines of *raw* that differ from *last*; return None if a name differs."""
        lines, known = raw.splitlines(keepends=True), last.raw.splitlines(keepends=True)
        if len(lines) != len(known):
            return None
        names, meanings, parts = last.names, last.meanings, last.parts.copy()
        section = Section(raw, names, meanings)
        section.varying = last.varying.copy()
        simple = last.plain
        for at in compress(count(), map(ne, lines, known)):
            line = lines[at]
            if at == len(names) or not _has_name(line, names[at]):
                return None
            parts[at] = line
            if meanings[at] == _PASS:
                section.varying.add(at)
            else:
                simple = False
        if simple:
            section.parts, section.fields = parts, last.fields
            section.end_to_end = b"".join(parts)
        else:
            self._interpret(section, map(_value_of, lines, names))
        return section

    def _read_full(self, raw: bytes) -> Section:
        pairs = split_fields(raw)
        known, meaning = self._names.known, self._names.meaning
        meanings = [known[name] if name in known else meaning(name) for name, _ in pairs]
        section = Section(raw, [name for name, _ in pairs], meanings)
        self._interpret(section, (value for _, value in pairs))
        return section

    def _interpret(self, section: Section, values: Iterable[bytes]) -> None:
        found: dict[int, list[bytes]] = {}
        parts: list[bytes] = []
        for name, value, meaning in zip(section.names, values, section.meanings, strict=True):
            parts.append(b"".join((name, b": ", value, b"\r\n")) if _CROSSES[meaning] else b"")
            if meaning > _DROP:
                if meaning not in found:
                    found[meaning] = [value]
                elif meaning in _LISTS:
                    found[meaning].append(value)
                else:
                    raise HeadRefused("bad_request")
        fields = section.fields = Fields()
        _take_host(fields, found.get(_HOST_FIELD))
        if _LENGTH_FIELD in found or _CODING_FIELD in found:
            _take_framing(fields, found, section.raw)
        parts.append(self._take_cookies(fields, found[_COOKIE]) if _COOKIE in found else b"")
        if _CONNECTION in found:
            section.plain = _take_connection(fields, found[_CONNECTION], section.names, parts)
        if _UPGRADE in found:
            _take_upgrade(fields, found)
        _take_provenance(fields, found)
        _take_rest(fields, found)
        section.end_to_end = b"".join(parts)
        section.parts = parts

    def _take_cookies(self, fields: Fields, values: list[bytes]) -> bytes:
        """Remove our cookies from *values* and return the others as ``Cookie`` fields."""
        if has_too_many_own_cookies(values):
            raise HeadRefused("head_too_large")
        ours: list[bytes] = []
        lines: list[bytes] = []
        room = FOREIGN_BYTES
        for value in values:
            left, found = cut_cookie(value, self._cookie_name)
            ours += found
            # White space before a removed cookie would now end the field.
            left = b"" if left is None else left.rstrip(_WHITE)
            kept = truncate_cookies(left, room)
            # A later field may be shorter, but the last cookies are the first to go.
            room = room - len(kept) if kept == left else 0
            if kept:
                lines += (b"Cookie: ", kept, b"\r\n")
        fields.cookies = tuple(ours)
        return b"".join(lines)


def _has_name(line: bytes, name: bytes) -> bool:
    """Return whether *line* has this *name* and a value, in canonical form."""
    return line.startswith(name) and _AFTER_NAME.fullmatch(line, len(name)) is not None


def _value_of(line: bytes, name: bytes) -> bytes:
    """Return the value of *line*, which was parsed before and has this *name*."""
    return line[len(name) + 1 :].strip(b" \t\r\n")


_WHITE: Final = b" \t"


def _take_host(fields: Fields, values: list[bytes] | None) -> None:
    if values is None or _HOST.fullmatch(values[0]) is None:
        raise HeadRefused("bad_request")
    fields.host = values[0].decode("ascii")


def _take_framing(fields: Fields, found: dict[int, list[bytes]], raw: bytes) -> None:
    lengths = found.get(_LENGTH_FIELD)
    if _CODING_FIELD in found:
        if lengths is not None or _CHUNKED.search(raw) is None:
            raise HeadRefused("bad_request")
        fields.chunked = True
    elif lengths is not None:
        if _LENGTH.fullmatch(lengths[0]) is None:
            raise HeadRefused("bad_request")
        fields.length = int(lengths[0])


def _take_connection(
    fields: Fields, values: list[bytes], names: list[bytes], parts: list[bytes]
) -> bool:
    """Read ``Connection`` and empty the *parts* it nominates; return True if there are none."""
    options = tokens(values)
    fields.close = b"close" in options
    fields.upgrade_nominated = b"upgrade" in options
    if options <= _PLAIN_OPTIONS:
        return True
    if options & NEVER_NOMINATED:
        raise HeadRefused("bad_request")
    for at, name in enumerate(names):
        if name.lower() in options:
            parts[at] = b""
    return False


def _take_upgrade(fields: Fields, found: dict[int, list[bytes]]) -> None:
    fields.websocket = b"websocket" in tokens(found[_UPGRADE])
    fields.socket_key = _first(found, _SOCKET_KEY)
    fields.socket_version = _first(found, _SOCKET_VERSION)
    fields.socket_extensions = joined(found, _SOCKET_EXTENSIONS)
    fields.socket_protocols = joined(found, _SOCKET_PROTOCOL)
    fields.valid_upgrade = _has_valid_upgrade(fields)


def _has_valid_upgrade(fields: Fields) -> bool:
    """Return whether *fields* are those of a valid upgrade (RFC 6455, section 4.2.1).

    Framing and ``Connection`` must have been read.
    """
    return (
        not fields.chunked
        and fields.length <= 0
        and fields.upgrade_nominated
        and fields.socket_version == b"13"
        and _SOCKET_KEY_VALUE.fullmatch(fields.socket_key or b"") is not None
        and (fields.socket_extensions or b"").count(b",") < MAX_OFFERS
        and (fields.socket_protocols or b"").count(b",") < MAX_OFFERS
    )


def _take_provenance(fields: Fields, found: dict[int, list[bytes]]) -> None:
    if _ORIGIN in found or _FETCH_SITE in found or _FETCH_MODE in found:
        fields.provenance = Provenance(
            _first(found, _ORIGIN),
            _first(found, _FETCH_SITE),
            _first(found, _FETCH_MODE),
            _first(found, _FETCH_DEST),
        )


def _take_rest(fields: Fields, found: dict[int, list[bytes]]) -> None:
    fields.accept = joined(found, _ACCEPT) or b""
    fields.token = _first(found, _TOKEN)
    fields.authorization = _first(found, _AUTHORIZATION)
    fields.forwarded_for = joined(found, _FORWARDED_FOR)
    fields.service_worker = _SERVICE_WORKER in found


def _first(found: dict[int, list[bytes]], meaning: int) -> bytes | None:
    values = found.get(meaning)
    return values[0] if values is not None else None


def joined(found: dict[int, list[bytes]], meaning: int) -> bytes | None:
    """Return the values of the fields with this *meaning* as one list; None without a field."""
    values = found.get(meaning)
    return b", ".join(values) if values is not None else None


# Plain integers: looking up an enumeration member costs more than using it.
_PASS, _DROP = int(Meaning.PASS), int(Meaning.DROP)
_HOST_FIELD, _LENGTH_FIELD, _CODING_FIELD = map(int, (Meaning.HOST, Meaning.LENGTH, Meaning.CODING))
_CONNECTION, _UPGRADE, _COOKIE = map(int, (Meaning.CONNECTION, Meaning.UPGRADE, Meaning.COOKIE))
_AUTHORIZATION, _TOKEN, _ACCEPT = map(int, (Meaning.AUTHORIZATION, Meaning.TOKEN, Meaning.ACCEPT))
_ORIGIN, _FETCH_SITE, _FETCH_MODE, _FETCH_DEST = map(
    int, (Meaning.ORIGIN, Meaning.FETCH_SITE, Meaning.FETCH_MODE, Meaning.FETCH_DEST)
)
_FORWARDED_FOR, _SOCKET_KEY, _SOCKET_VERSION = map(
    int, (Meaning.FORWARDED_FOR, Meaning.SOCKET_KEY, Meaning.SOCKET_VERSION)
)
_SOCKET_EXTENSIONS, _SOCKET_PROTOCOL = map(
    int, (Meaning.SOCKET_EXTENSIONS, Meaning.SOCKET_PROTOCOL)
)

_SERVICE_WORKER = int(Meaning.SERVICE_WORKER)

_LISTS: Final = frozenset(
    {
        _CONNECTION,
        _UPGRADE,
        _COOKIE,
        _ACCEPT,
        _FORWARDED_FOR,
        _SOCKET_EXTENSIONS,
        _SOCKET_PROTOCOL,
    }
)
"""Fields that may occur several times; any other field with a meaning may not."""
_CROSSING: Final = frozenset(
    {_PASS, _ORIGIN, _FETCH_SITE, _FETCH_MODE, _FETCH_DEST, _ACCEPT, _SERVICE_WORKER}
)
_CROSSES: Final = tuple(meaning in _CROSSING for meaning in range(max(Meaning) + 1))
"""Which meanings reach the app unchanged. Cookies reach it without the gateway's, and
``Authorization`` reaches it unless it is the gateway's."""
_PLAIN_OPTIONS: Final = frozenset({b"close"} | HOP_BY_HOP) - {b"transfer-encoding"}
"""``Connection`` options that nominate no end-to-end field."""


def check_consistency(start: StartLine, fields: Fields) -> None:
    """Refuse a start line and fields that contradict each other.

    RFC 9112, section 3.2.2, has a server ignore ``Host`` beside a target in absolute-form. A proxy
    in front may have routed by it, so another host is refused. The default port of the target's
    scheme may be omitted on either side (RFC 9110, section 4.2.3).

    Raises:
        HeadRefused: ``bad_request``.
    """
    if start.minor == 0 and fields.chunked:
        raise HeadRefused("bad_request")
    if start.authority is None:
        return
    authority, host = start.authority, fields.host.lower().encode()
    if _without_port(authority, start.default_port) != _without_port(host, start.default_port):
        raise HeadRefused("bad_request")


def _without_port(authority: bytes, default: bytes) -> bytes:
    """Return *authority* without an empty port, or without the *default* port."""
    name, colon, port = authority.partition(b":")
    return name if colon + port in (b":", default) else authority
