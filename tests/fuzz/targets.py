"""Every parser of foreign input, and the inputs with which its damage begins."""

from __future__ import annotations

from typing import Final

from gateway.core.limits.addresses import (
    SIGNATURE,
)
from tests.fuzz.http import check_answer, check_chunks, check_length, check_request, check_sequence
from tests.fuzz.mutation import Target
from tests.fuzz.streams import (
    check_desktop,
    check_fragments,
    check_frames,
    check_handshake,
    check_view,
)
from tests.fuzz.values import check_cookie, check_next, check_proxy_header

SECRET: Final = b"c0ffee-grant"


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
    b"Host: h\r\nA: b\r\nB: c\xfeHost: h\r\nA: c\r\nB: c\xfeHost: h\r\nA: d\r\nB: e",
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
_RECT: Final = b"\0\0\0\1\0\0\0\0\0\2\0\2"
_INIT: Final = b"\0\x40\0\x30\x20\x18\0\1\0\xff\0\xff\0\xff\x10\x08\0" + bytes(3) + b"\0\0\0\4desk"
_DESKTOPS: Final = tuple(
    _INIT + messages
    for messages in (
        _RECT + bytes(20) + b"\2" + b"\3\0\0\0\0\0\0\4text" + b"\2",
        _RECT + b"\0\0\0\1\0\0\0\0" + b"\3\0\0\0\xff\xff\xff\xf8" + bytes(8) + b"\x96",
        _RECT + b"\0\0\0\7\x80\3\3\3" + _RECT + b"\0\0\0\x10\0\0\0\2\3\3",
        _RECT + b"\xff\xff\xfe\xcd\0\0\0\4name" + b"\xf8\0\0\0\x80\0\0\1\1x",
        b"\0\0\xff\xff" + _RECT[4:] + b"\xff\xff\xff\x20" + b"\1\0\0\0\0\1" + bytes(6),
    )
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
        name="fragments",
        check=check_fragments,
        seeds=(b"\x82\x80\x00\x10", b"\x02\x00\x80\x00\x89\x00\x00\x01\x80\x00\x40\x00"),
        words=(b"\x82\x80\xff\xff", b"\x82\x00\x33\x34", b"\x88\x80\x33\x33"),
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
        name="desktops",
        check=check_desktop,
        seeds=_DESKTOPS,
        words=(
            _RECT,
            b"\3\0\0\0",
            b"\0\0\0\7",
            b"\0\0\0\1",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xfe\xcc",
            b"\x90\x80\x80\1",
            b"\0\0\0\0",
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
