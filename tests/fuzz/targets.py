"""Everything that parses what browsers, apps, desktops and proxies send, and what is promised."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gateway.core.answers import REFUSALS
from gateway.core.app_heads import BAD, AnswerReader, answer_body, find_answer_end
from gateway.core.cookies import cut_cookie
from gateway.core.fields import FieldReader, Fields, check_together
from gateway.core.frames import FrameTracker
from gateway.core.framing import Body, ChunkedBody, FramingError, LengthBody
from gateway.core.headers import Facts, forwarded_fields, head_to_app
from gateway.core.heads import HeadRefused, StartLine, find_end, read_start_line
from gateway.core.opening import judge_next
from gateway.core.proxy_header import (
    FIXED_BYTES,
    SIGNATURE,
    BadProxyHeader,
    remaining_bytes,
    source_address,
)
from gateway.core.rfb import Handshake, RfbError, Side, ViewFilter
from gateway.core.upgrade import is_proper_upgrade
from tests.fuzz.mutation import Target, cut
from tests.fuzz.reading import (
    cgi_name,
    cookie_names,
    read_answer,
    read_chunks,
    read_request,
    viewer_messages,
)

COOKIE: Final = b"fumarole"
SECRET: Final = b"c0ffee-grant"
_FACTS: Final = Facts(client_address="192.0.2.7", scheme="http", user="ada")
_READER: Final = FieldReader(COOKIE)
_ANSWERS: Final = AnswerReader("frame-ancestors 'self'")
_IDENTITY: Final = frozenset({b"x_forwarded_user", b"x_forwarded_for", b"x_forwarded_host"})

# Requests


def read_whole(raw: bytes) -> tuple[StartLine, Fields]:
    """Return what the front would make of a whole head."""
    line_end = raw.find(b"\r\n")
    start = read_start_line(raw[:line_end])
    fields = _READER.read(raw[line_end + 2 :])
    check_together(start, fields)
    if fields.websocket and not is_proper_upgrade(start, fields):
        raise HeadRefused("bad_upgrade")
    return start, fields


def _read_in(pieces: list[bytes]) -> tuple[int, StartLine, Fields] | str:
    """Return where the head in *pieces* ends and what it says, or the code of its refusal."""
    buffer = b""
    try:
        for piece in pieces:
            seen = len(buffer)
            buffer += piece
            end = find_end(buffer, seen)
            if end:
                return (end, *read_whole(buffer[:end]))
    except HeadRefused as refused:
        return refused.code
    return "incomplete"


def check_request(data: bytes) -> Hashable:
    """A head is refused, or what goes to the app is canonical, whole, and without our secrets."""
    whole, split = _read_in([data]), _read_in(cut(data))
    if isinstance(whole, str) or isinstance(split, str):
        # What is wrong twice may be refused for either.
        assert isinstance(whole, str), (whole, split)
        assert isinstance(split, str), (whole, split)
        assert (whole == "incomplete") == (split == "incomplete"), (whole, split)
        assert whole in REFUSALS or whole == "incomplete", whole
        return whole
    assert whole[0] == split[0], (whole, split)
    _check_request_to_app(whole[1], whole[2])
    return _shape(whole[1], whole[2])


def _check_request_to_app(start: StartLine, fields: Fields) -> None:
    tail = head_to_app(fields, forwarded_fields(fields.host, _FACTS), upgrade=fields.websocket)
    raw = b"%b %b%b" % (start.method, start.target, tail)
    head = read_request(raw)
    assert head.all(b"host") == [fields.host.encode()], head
    if fields.websocket:
        assert not head.framing, head
    else:
        framed = b"chunked" if fields.chunked else b"%d" % fields.length
        assert head.framing in ((), (framed,)), head
        assert bool(head.framing) == (fields.chunked or fields.length >= 0), head
    folded = [cgi_name(name) for name, _ in head.fields]
    for name in _IDENTITY:
        assert folded.count(name) == 1, (name, head)
    for value in head.all(b"cookie"):
        assert not {COOKIE, b"__Host-fumarole"} & set(cookie_names(value)), value
    assert not head.all(b"fumarole-token"), head
    # Read once more, it means the same.
    again_start, again = read_whole(raw)
    assert (again_start.method, again_start.target) == (start.method, start.target)
    assert (again.host, again.length, again.chunked) == (fields.host, fields.length, fields.chunked)
    assert again.cookies == (), again.cookies


def _shape(start: StartLine, fields: Fields) -> Hashable:
    return (
        start.minor,
        start.authority is None,
        fields.chunked,
        min(fields.length, 1),
        fields.close,
        fields.websocket,
        len(fields.cookies),
        fields.token is None,
        fields.authorization is None,
        fields.crossing.count(b"\r\n"),
    )


def check_sequence(data: bytes) -> Hashable:
    """A section after another means what it means alone.

    The two are parted by a byte that stands in neither.
    """
    first, _, second = data.partition(b"\xfe")
    sections = [part + b"\r\n\r\n" for part in (first, second)]
    if any(b"\r\n\r\n" in part[:-2] for part in sections):
        return "two heads"
    try:
        last = _READER.read_section(sections[0], None)
    except HeadRefused as refused:
        return refused.code
    verdicts: list[dict[str, object] | str] = []
    for before in (None, last):
        try:
            fields = _READER.read_section(sections[1], before).fields
        except HeadRefused as refused:
            verdicts.append(refused.code)
        else:
            verdicts.append({name: getattr(fields, name) for name in Fields.__slots__})
    assert verdicts[0] == verdicts[1], verdicts
    return verdicts[0] if isinstance(verdicts[0], str) else str(verdicts[0]["crossing"])[:12]


# Answers


def check_answer(data: bytes) -> Hashable:
    """An answer is refused, or what goes to the browser is canonical and framed in one way."""
    try:
        end = find_answer_end(data)
        if not end:
            return 0
        head = _ANSWERS.read_head(data[:end])
        framings = []
        for method in (b"GET", b"HEAD"):
            for minor in (0, 1):
                body, framing = answer_body(head, method, minor)
                raw = b"".join((head.status_line, head.fields.crossing, framing, b"\r\n"))
                framings.append((type(body).__name__, read_answer(raw).framing))
    except HeadRefused as refused:
        return {BAD: "refused"}[refused.code]
    crossing = read_answer(head.status_line + head.fields.crossing + b"\r\n")
    assert not crossing.framing, crossing
    for value in crossing.all(b"set-cookie"):
        name = value.partition(b";")[0].partition(b"=")[0].strip(b" \t").lower()
        assert name not in (COOKIE, b"__host-fumarole"), value
        assert b"domain" not in [
            a.partition(b"=")[0].strip().lower() for a in value.split(b";")[1:]
        ]
    assert len(crossing.all(b"content-security-policy")) >= 1
    assert not crossing.all(b"connection"), crossing
    return head.minor, head.status // 100, tuple(framings), head.fields.websocket


# Bodies


def _fed(body: Body, pieces: list[bytes]) -> tuple[bytes, bool, bytes] | str:
    out = b""
    try:
        for piece in pieces:
            out += body.feed(piece)
    except FramingError as error:
        return str(error)
    return out, body.done, body.rest


def check_chunks(data: bytes) -> Hashable:
    """Any split gives the same; what goes on is canonical chunks of the same bytes."""
    whole = _fed(ChunkedBody(), [data])
    split = _fed(ChunkedBody(), cut(data))
    byte_by_byte = _fed(ChunkedBody(), [data[i : i + 1] for i in range(len(data))])
    bare = _fed(ChunkedBody(framed=False), [data])
    if isinstance(whole, str):
        assert isinstance(split, str), (whole, split)
        assert isinstance(byte_by_byte, str), (whole, byte_by_byte)
        assert isinstance(bare, str), (whole, bare)
        return whole
    assert split == byte_by_byte == whole, (whole, split, byte_by_byte)
    assert not isinstance(bare, str)
    if whole[1]:
        assert read_chunks(whole[0]) == bare[0]
    assert bare[1:] == whole[1:]
    return whole[1], min(len(bare[0]), 3), bool(whole[2]), whole[0].count(b"\r\n")


def check_length(data: bytes) -> Hashable:
    """A body of a known length is its first bytes, whatever the split."""
    length = int.from_bytes(data[:2], "big") % 300
    whole = _fed(LengthBody(length), [data])
    assert whole == (data[:length], len(data) >= length, data[length:])
    assert _fed(LengthBody(length), cut(data)) == whole
    return min(len(data), length)


# WebSocket frames


def _ends(data: bytes) -> list[int] | None:
    """Return where frames end in *data*, up to the first that is incomplete (RFC 6455, 5.2)."""
    ends, at = [0], 0
    while at + 2 <= len(data):
        size, header = data[at + 1] & 0x7F, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            if at + 2 + wide > len(data):
                return ends
            size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
            header += wide
        at += header + (4 if data[at + 1] & 0x80 else 0) + size
        ends.append(at)
    return ends


def check_frames(data: bytes) -> Hashable:
    """A boundary is where a frame ends, and nowhere else, whatever the split."""
    ends = set(_ends(data) or [0])
    tracker, at = FrameTracker(), 0
    for piece in cut(data):
        tracker.feed(piece)
        at += len(piece)
        assert tracker.at_boundary == (at in ends), (at, ends)
    finisher = FrameTracker()
    middle = len(data) // 2
    finisher.feed(data[:middle])
    taken = finisher.feed_to_boundary(data[middle:])
    later = [end for end in ends if end >= middle]
    assert taken == (min(later) if later else len(data)) - middle or min(later) > len(data)
    return len(ends), tracker.at_boundary, min(tracker.left, 2)


# RFB


def _viewed(pieces: list[bytes]) -> bytes | str:
    views, passed = ViewFilter(), b""
    try:
        for piece in pieces:
            passed += views.feed(piece)
    except RfbError as error:
        return str(error)
    return passed


def check_view(data: bytes) -> Hashable:
    """An onlooker's input never passes, whatever the split; what passes passes unchanged again."""
    whole, split = _viewed([data]), _viewed(cut(data))
    if isinstance(whole, str) or isinstance(split, str):
        assert isinstance(whole, str), (whole, split)
        assert isinstance(split, str), (whole, split)
        return whole
    assert whole == split
    messages = viewer_messages(whole)
    assert _viewed([whole]) == whole
    return tuple(message[0] for message in messages[:6])


def _shaken(data: bytes, password: str | None, *, in_pieces: bool) -> Hashable:
    """Feed each side what stands for it: the first byte of a piece says whose it is."""
    handshake = Handshake(password=password, shared=True)
    sent = {Side.BROWSER: b"", Side.DESKTOP: b""}
    verdict = "open"
    try:
        for piece in data.split(b"\xff"):
            side = Side.DESKTOP if piece[:1] < b"b" else Side.BROWSER
            for part in cut(piece[1:]) if in_pieces else [piece[1:]]:
                handshake.feed(side, part)
    except RfbError as error:
        verdict = str(error)
    sent[Side.BROWSER], sent[Side.DESKTOP] = (
        bytes(handshake.to_browser),
        bytes(handshake.to_desktop),
    )
    return verdict, handshake.done, sent[Side.BROWSER], sent[Side.DESKTOP]


def check_handshake(data: bytes) -> Hashable:
    """Any split gives the same, and the password reaches neither side as it is."""
    verdicts = []
    for password in (None, "h0tl4va"):
        whole = _shaken(data, password, in_pieces=False)
        assert _shaken(data, password, in_pieces=True) == whole
        assert isinstance(whole, tuple)
        assert all(b"h0tl4va" not in side for side in whole[2:])
        verdicts.append((whole[0], whole[1], len(whole[2])))
    return tuple(verdicts)


# Cookies, places, proxies


def check_cookie(data: bytes) -> Hashable:
    """Ours are cut out whatever stands around them; the app's stay byte for byte, in order."""
    left, ours = cut_cookie(data, COOKIE)
    pairs = data.split(b";")
    names = {COOKIE, b"__Host-fumarole"}
    kept = [p for p in pairs if b"=" not in p or p.partition(b"=")[0].strip(b" \t") not in names]
    if left is not None:
        found = [n for n in left.split(b";") if n.partition(b"=")[1]]
        assert not names & {pair.partition(b"=")[0].strip(b" \t") for pair in found}, left
        assert left.strip(b" \t") == b";".join(kept).strip(b" \t"), (left, kept)
        assert cut_cookie(left, COOKIE) == (left, [])
    return left is None, len(ours), min(len(kept), 4)


def check_next(data: bytes) -> Hashable:
    """Where ``next`` leads is a path of this origin, as browsers read it."""
    path = judge_next(data.decode("latin-1"))
    assert path.startswith("/"), path
    seen = "".join(c for c in path if c not in "\t\r\n").replace("\\", "/")
    assert not seen.startswith("//"), path
    assert not any(ord(c) < 0x21 or ord(c) == 0x7F for c in path), path
    return path == "/", path.count("/"), "%" in path


def check_proxy_header(data: bytes) -> Hashable:
    """A header is refused or names an address, and nothing beyond it is wanted."""
    if len(data) < FIXED_BYTES:
        return "short"
    fixed, rest = data[:FIXED_BYTES], data[FIXED_BYTES:]
    try:
        wanted = remaining_bytes(fixed)
    except BadProxyHeader as error:
        return str(error)
    assert fixed.startswith(SIGNATURE)
    assert 0 <= wanted <= 4096
    if len(rest) < wanted:
        return "more"
    address = source_address(fixed, rest[:wanted])
    assert address == source_address(fixed, rest[:wanted] + b"x")
    return address is None, address is not None and ":" in address


# Where the changes begin

_HEADS: Final = (
    b"GET /a?b HTTP/1.1\r\nHost: h:1\r\nCookie: a=b; fumarole=" + SECRET + b"; c=d\r\n\r\n",
    b"POST http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
    b"Connection: X, close\r\nX: y\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Origin: http://h\r\nSec-WebSocket-Extensions: permessage-deflate; x=1\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: h\r\nX_Forwarded_User: eve\r\nFumarole-Token: t\r\n\r\n",
)
_HEAD_WORDS: Final = tuple(
    b"\r\n|\r|\n|\0| |\t|:|,|;|=|HTTP/1.1|Host: h\r\n|Content-Length: 5\r\n|Content-Length: +5\r\n|"
    b"Transfer-Encoding: chunked\r\n|Transfer-Encoding: identity\r\n|\r\n\r\n|\r\n X: folded|"
    b"Connection: Content-Length\r\n|Connection: cookie\r\n|Upgrade: websocket\r\n|chunked|"
    b"X-Forwarded-User: eve\r\n|X.Forwarded.User: eve\r\n|x_forwarded_for: 1.2.3.4\r\n|"
    b"Cookie: fumarole=x\r\n|__Host-fumarole=|; fumarole=|Fumarole-Token: x\r\n|"
    b"Authorization: Bearer a.b.c\r\n|GET|CONNECT|//|\\|#|http://|\x7f|\xff|\x0b".split(b"|")
)
_SEQUENCES: Final = (
    b"Host: h\r\nA: b\r\nAccept: c\xfeHost: h\r\nA: c\r\nAccept: d",
    b"Host: h\r\nConnection: A\r\nA: b\xfeHost: h\r\nConnection: A\r\nA: c",
    b"Host: h\r\nContent-Length: 5\r\nA: b\xfeHost: h\r\nContent-Length: 6\r\nA:b",
    b"Cookie: fumarole=a; b=c\r\nHost: h\r\nX-A: b\xfeCookie: fumarole=d; b=c\r\nHost: h\r\nX-A: c",
)
_ANSWER_HEADS: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b; Domain=x\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n",
    b"HTTP/1.1 304 \r\nTransfer-Encoding: chunked\r\nCache-Control: public\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    b"HTTP/1.1 200\r\nConnection: Set-Cookie\r\nSet-Cookie: fumarole=x\r\nAlt-Svc: h3\r\n\r\n",
)
_ANSWER_WORDS: Final = (
    *_HEAD_WORDS,
    *b"Set-Cookie: fumarole=x\r\n|Set-Cookie: a=b; domain=.x\r\n|204|304|103|HTTP/1.0|600".split(
        b"|"
    ),
)
_CHUNK_WORDS: Final = tuple(
    b"\r\n|\n|\r|;|0\r\n|5\r\n|0x|+|-|00000000000000005|ffffffffffffffff|\t| |=|T: u\r\n".split(
        b"|"
    )
)
_VERSION: Final = b"RFB 003.008\n"
_SHAKES: Final = (
    b"a" + _VERSION + b"\xffb" + _VERSION + b"\xffa\1\1\xffb\1\xffa\0\0\0\0\xffb\1",
    b"a" + _VERSION + b"\xffa\1\2\xffb" + _VERSION + b"\xffb\1\xffa0123456789abcdef\0\0\0\0\xffb\0",
    b"aRFB 003.003\n\0\0\0\2\xffbRFB 003.003\n\xffa0123456789abcdef"
    b"\xffb0123456789abcdef\xffa\0\0\0\0",
    b"aRFB 003.007\n\0\0\0\0\5nope!",
)
_VIEWS: Final = (
    b"\0\0\0\0" + bytes(16) + b"\2\0\0\2\0\0\0\0\xff\xff\xff\x21" + b"\3" + bytes(9),
    b"\4\1\0\0\0\0\0a\5\1\0\1\0\1\6\0\0\0\0\0\0\3abc\xf8\0\0\0\0\0\0\1\2ab\x96" + bytes(9),
    b"\xff\0\0\1\0\0\0\1\0\0\0\1\xff\1\0\2" + bytes(6) + b"\xfb\0\0\1\0\1\1\0" + bytes(16),
)
_FRAMES: Final = (
    b"\x82\5hello\x89\0",
    b"\x82\x85maskhello\x88\x82mask\3\xe8",
    b"\x82\x7e\0\x80" + bytes(128) + b"\x81\x7f" + (200).to_bytes(8, "big") + bytes(200),
)
_PROXIED: Final = (
    SIGNATURE + b"\x21\x11\0\x0c\x7f\0\0\1\x7f\0\0\2\0\1\0\2GET /",
    SIGNATURE + b"\x21\x21\0\x24" + bytes(10) + b"\xff\xff\x7f\0\0\1" + bytes(20),
    SIGNATURE + b"\x20\0\0\0",
)

TARGETS: Final = (
    Target(name="requests", check=check_request, seeds=_HEADS, words=_HEAD_WORDS),
    Target(name="sequences", check=check_sequence, seeds=_SEQUENCES, words=_HEAD_WORDS),
    Target(name="answers", check=check_answer, seeds=_ANSWER_HEADS, words=_ANSWER_WORDS),
    Target(
        name="chunks",
        check=check_chunks,
        seeds=(b"5\r\nhello\r\n0\r\n\r\n", b"A;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\nGET /"),
        words=_CHUNK_WORDS,
    ),
    Target(name="lengths", check=check_length, seeds=(b"\0\5hello", b"\1\0" + bytes(300))),
    Target(
        name="frames",
        check=check_frames,
        seeds=_FRAMES,
        words=(b"\x82\x7e", b"\x82\x7f", b"\x82\xff", b"\x88\0", bytes(7), b"\xff" * 8),
    ),
    Target(
        name="views",
        check=check_view,
        seeds=_VIEWS,
        words=(
            b"\2\0\0\1",
            b"\xff\1\0\0",
            b"\xf8\0\0\0",
            b"\6\0\0\0\xff\xff\xff\xff",
            b"\4",
            b"\5",
        ),
    ),
    Target(
        name="handshakes",
        check=check_handshake,
        seeds=_SHAKES,
        words=(b"\xffa", b"\xffb", _VERSION),
    ),
    Target(
        name="cookies",
        check=check_cookie,
        seeds=(b"a=b; fumarole=x; c=d", b"__Host-fumarole=x", b"fumarole=x;a", b'a="; fumarole=x"'),
        words=b'fumarole=|__Host-fumarole=|;|; |=|\t|"|,|fumarole|Fumarole=| '.split(b"|"),
    ),
    Target(
        name="nexts",
        check=check_next,
        seeds=(b"/lab?a=b#c", b"//x", b"/%2f/x", b"/\\x", b"/\t/x"),
        words=b"/|\\|%2f|%5c|%09|\t|\n|//|:|@|?|#|..|%25|\x00".split(b"|"),
    ),
    Target(
        name="proxy_headers",
        check=check_proxy_header,
        seeds=_PROXIED,
        words=(SIGNATURE, b"\x21\x11", b"\x20\0", b"\0\x0c", b"\x10\0"),
    ),
)
