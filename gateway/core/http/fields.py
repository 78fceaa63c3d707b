"""What the field section of a request says, read in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress, count
from operator import ne
from typing import Final

import msgspec

from gateway.core.access.site import Provenance
from gateway.core.http.cookies import FOREIGN_BYTES, cut_cookie, fitting, mention_us_often
from gateway.core.http.heads import HeadRefused, StartLine, split_fields, tokens
from gateway.core.http.names import HOP_BY_HOP, NEVER_NOMINATED, Meaning, Names, request_names
from gateway.core.http.template import Template
from gateway.core.http.upgrade import is_proper

MAX_LENGTH_DIGITS: Final = 18

_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?")
_AFTER_NAME = re.compile(rb": [!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?\r\n")
"""What follows a name in canonical form: a value (RFC 9110, section 5.5) without space around."""
_CHUNKED = re.compile(rb"^transfer-encoding:[ \t]*+chunked *+\r\n", re.IGNORECASE | re.MULTILINE)
"""The only ``Transfer-Encoding`` of a request: with a tab after it, parsers of apps differ."""
_LENGTH = re.compile(rb"[0-9]{1,%d}" % MAX_LENGTH_DIGITS)


_SAYS_NOTHING: Final = Provenance(None, None, None, None)


class Fields(msgspec.Struct, eq=False, gc=False):
    """What a field section says to the gateway, read once; immutable by convention.

    ``length`` is -1 without ``Content-Length``; ``service_worker``: a browser fetches the script of
    a service worker; ``proper_upgrade``: a proper WebSocket upgrade has such fields.
    """

    host: str = ""
    length: int = -1
    chunked: bool = False
    close: bool = False
    upgrade_nominated: bool = False
    websocket: bool = False
    proper_upgrade: bool = False
    cookies: tuple[bytes, ...] = ()
    token: bytes | None = None
    authorization: bytes | None = None
    accept: bytes = b""
    forwarded_for: bytes | None = None
    provenance: Provenance = _SAYS_NOTHING
    service_worker: bool = False
    socket_key: bytes | None = None
    socket_version: bytes | None = None
    socket_extensions: bytes | None = None
    socket_protocols: bytes | None = None


class Section:
    """A field section that was read, so that the next is read by the lines that differ.

    ``crossing`` holds the end-to-end fields in canonical form, without ``Host``, framing, and all
    that is ours; ``parts`` what crosses of each line, and at its end what crosses of the cookies.
    ``plain``: ``Connection`` took nothing away, so that a part is its line's alone. Sections that
    say the same to the gateway, after one another, share their ``fields``; ``template`` finds most
    of them, by the lines that were ``varying`` before.
    """

    __slots__ = (
        "crossing",
        "fields",
        "meanings",
        "names",
        "parts",
        "plain",
        "raw",
        "template",
        "varying",
    )

    crossing: bytes
    fields: Fields
    parts: list[bytes]
    template: Template

    def __init__(self, raw: bytes, names: list[bytes], meanings: list[int]) -> None:
        self.raw = raw
        self.names = names
        self.meanings = meanings
        self.plain = True
        self.varying: set[int] = set()


def known_section(raw: bytes, fields: Fields, crossing: bytes) -> Section:
    """Return a section of which is known what it says, and nothing of its lines."""
    section = Section(raw, [], [])
    section.fields, section.crossing = fields, crossing
    section.template = Template(raw, crossing)
    return section


class FieldReader:
    """Reads field sections of requests.

    Args:
        cookie_name: The name under which our cookie counts here.
    """

    __slots__ = ("_cookie_name", "_names")

    def __init__(self, cookie_name: bytes) -> None:
        self._cookie_name = cookie_name
        self._names: Names = request_names()

    def read(self, section: bytes) -> Fields:
        """Return what *section* (the lines after the start line, with the empty one) says.

        Raises:
            HeadRefused: If it must not be acted upon.
        """
        return self.read_section(section, None).fields

    def read_section(self, raw: bytes, last: Section | None) -> Section:
        """Return what *raw* says, which is the same with and without the *last* section.

        This is the costliest part of a request, and browsers send nearly the same with each. A
        line that stood in the last section at the same place was judged there. Where all others
        have the name that stood there, too, only their values are new.

        Raises:
            HeadRefused: If it must not be acted upon.
        """
        section = self._read_as_last(raw, last) if last is not None and last.names else None
        if section is None:
            section = self._read_whole(raw)
        section.template = Template(raw, section.crossing)
        if section.varying and section.plain:
            lines = raw.splitlines(keepends=True)
            section.template.loosen(lines, section.parts, section.names, section.varying)
        return section

    def _read_as_last(self, raw: bytes, last: Section) -> Section | None:
        """Return what *raw* says by what differs from the *last* one; None for other names."""
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
            section.crossing = b"".join(parts)
        else:
            self._understand(section, map(_value_of, lines, names))
        return section

    def _read_whole(self, raw: bytes) -> Section:
        pairs = split_fields(raw)
        known, meaning = self._names.known, self._names.meaning
        meanings = [known[name] if name in known else meaning(name) for name, _ in pairs]
        section = Section(raw, [name for name, _ in pairs], meanings)
        self._understand(section, (value for _, value in pairs))
        return section

    def _understand(self, section: Section, values: Iterable[bytes]) -> None:
        held: dict[int, list[bytes]] = {}
        parts: list[bytes] = []
        for name, value, meaning in zip(section.names, values, section.meanings, strict=True):
            parts.append(b"".join((name, b": ", value, b"\r\n")) if _CROSSES[meaning] else b"")
            if meaning > _DROP:
                if meaning not in held:
                    held[meaning] = [value]
                elif meaning in _LISTS:
                    held[meaning].append(value)
                else:
                    raise HeadRefused("bad_request")
        fields = section.fields = Fields()
        _take_host(fields, held.get(_HOST_FIELD))
        if _LENGTH_FIELD in held or _CODING_FIELD in held:
            _take_framing(fields, held, section.raw)
        parts.append(self._take_cookies(fields, held[_COOKIE]) if _COOKIE in held else b"")
        if _CONNECTION in held:
            section.plain = _take_connection(fields, held[_CONNECTION], section.names, parts)
        if _UPGRADE in held:
            _take_upgrade(fields, held)
        _take_provenance(fields, held)
        _take_rest(fields, held)
        section.crossing = b"".join(parts)
        section.parts = parts

    def _take_cookies(self, fields: Fields, values: list[bytes]) -> bytes:
        """Cut our cookies out of *values*, and return what is left as fields."""
        if mention_us_often(values):
            raise HeadRefused("head_too_large")
        ours: list[bytes] = []
        lines: list[bytes] = []
        room = FOREIGN_BYTES
        for value in values:
            left, found = cut_cookie(value, self._cookie_name)
            ours += found
            # White space that stood before a cookie of ours would now end the field.
            kept = fitting(left.rstrip(_WHITE), room) if left is not None else b""
            if kept:
                room -= len(kept)
                lines += (b"Cookie: ", kept, b"\r\n")
        fields.cookies = tuple(ours)
        return b"".join(lines)


def _has_name(line: bytes, name: bytes) -> bool:
    """Say whether *line* is *name* with some value, in canonical form."""
    return line.startswith(name) and _AFTER_NAME.fullmatch(line, len(name)) is not None


def _value_of(line: bytes, name: bytes) -> bytes:
    """Return the value in a *line* that was read before, and has *name*."""
    return line[len(name) + 1 :].strip(b" \t\r\n")


_WHITE: Final = b" \t"


def _take_host(fields: Fields, values: list[bytes] | None) -> None:
    if values is None or _HOST.fullmatch(values[0]) is None:
        raise HeadRefused("bad_request")
    fields.host = values[0].decode("ascii")


def _take_framing(fields: Fields, held: dict[int, list[bytes]], raw: bytes) -> None:
    lengths = held.get(_LENGTH_FIELD)
    if _CODING_FIELD in held:
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
    """Read ``Connection``, and empty the *parts* of the fields that it names; True for none."""
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


def _take_upgrade(fields: Fields, held: dict[int, list[bytes]]) -> None:
    fields.websocket = b"websocket" in tokens(held[_UPGRADE])
    fields.socket_key = _first(held, _SOCKET_KEY)
    fields.socket_version = _first(held, _SOCKET_VERSION)
    fields.socket_extensions = _joined(held, _SOCKET_EXTENSIONS)
    fields.socket_protocols = _joined(held, _SOCKET_PROTOCOL)
    fields.proper_upgrade = is_proper(fields)


def _take_provenance(fields: Fields, held: dict[int, list[bytes]]) -> None:
    if _ORIGIN in held or _FETCH_SITE in held or _FETCH_MODE in held:
        fields.provenance = Provenance(
            _first(held, _ORIGIN),
            _first(held, _FETCH_SITE),
            _first(held, _FETCH_MODE),
            _first(held, _FETCH_DEST),
        )


def _take_rest(fields: Fields, held: dict[int, list[bytes]]) -> None:
    fields.accept = _joined(held, _ACCEPT) or b""
    fields.token = _first(held, _TOKEN)
    fields.authorization = _first(held, _AUTHORIZATION)
    fields.forwarded_for = _joined(held, _FORWARDED_FOR)
    fields.service_worker = _SERVICE_WORKER in held


def _first(held: dict[int, list[bytes]], meaning: int) -> bytes | None:
    values = held.get(meaning)
    return values[0] if values is not None else None


def _joined(held: dict[int, list[bytes]], meaning: int) -> bytes | None:
    values = held.get(meaning)
    return b", ".join(values) if values is not None else None


# Plain integers: looking a member of the enumeration up costs more than using it.
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
"""Fields that may come several times; all others of a meaning may not."""
_CROSSING: Final = frozenset(
    {_PASS, _ORIGIN, _FETCH_SITE, _FETCH_MODE, _FETCH_DEST, _ACCEPT, _SERVICE_WORKER}
)
_CROSSES: Final = tuple(meaning in _CROSSING for meaning in range(max(Meaning) + 1))
"""Fields that the app gets as they are, by their meaning. Cookies cross without ours, and
``Authorization`` when it is the app's."""
_PLAIN_OPTIONS: Final = frozenset({b"close"} | HOP_BY_HOP) - {b"transfer-encoding"}
"""Options of ``Connection`` that name no field that would cross."""


def check_together(start: StartLine, fields: Fields) -> None:
    """Refuse what start line and fields are only together: read both first.

    Raises:
        HeadRefused: ``bad_request``.
    """
    if start.minor == 0 and fields.chunked:
        raise HeadRefused("bad_request")
    if start.authority is not None and start.authority.lower() != fields.host.lower().encode():
        raise HeadRefused("bad_request")
