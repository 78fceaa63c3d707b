from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.fields import FieldReader, Fields, Section, check_consistency
from gateway.core.http.heads import HeadRefused, read_start_line
from gateway.core.http.names import Meaning, request_names

READER = FieldReader(b"fumarole")


def read_section(*lines: str, host: str | None = "Host: a.example") -> Section:
    every = ([host] if host else []) + list(lines)
    return READER.read_section("\r\n".join((*every, "", "")).encode("latin-1"), None)


def read(*lines: str, host: str | None = "Host: a.example") -> Fields:
    return read_section(*lines, host=host).fields


def end_to_end(*lines: str) -> bytes:
    return read_section(*lines).end_to_end


SPOOFED = [
    "Forwarded",
    "Via",
    "X-Real-IP",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-User",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Anything-Else",
    "Proxy",
    "Fumarole-Token",
]


@given(st.sampled_from(SPOOFED), st.data())
def test_no_spelling_of_a_reserved_field_is_forwarded(name: str, data: st.DataObject) -> None:
    spelled = "".join(
        data.draw(st.sampled_from("-_.#!$%&'*+^`|~")) if letter == "-" else
        data.draw(st.sampled_from([letter.lower(), letter.upper()]))
        for letter in name
    )  # fmt: skip
    assert end_to_end(f"{spelled}: evil", "X-Own: 1") == b"X-Own: 1\r\n"


@pytest.mark.parametrize(
    "name",
    [
        "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade",
        "Proxy-Authorization", "HTTP2-Settings", "Transfer_Encoding", "Content_Length", "Ho_st",
        "Content.Length", "transfer.encoding",
    ],
)  # fmt: skip
def test_hop_by_hop_fields_and_misspelt_framing_are_not_forwarded(name: str) -> None:
    expected = b"" if name != "Ho_st" else b"Ho_st: close\r\n"
    assert end_to_end(f"{name}: close") == expected


def test_fields_named_by_connection_are_not_forwarded() -> None:
    kept = end_to_end("X-Hop: 1", "Connection: close, x-hop , X-Other", "X-OTHER: 2", "X-Own: 3")
    assert kept == b"X-Own: 3\r\n"


def test_connection_may_name_fields_that_the_gateway_rewrites() -> None:
    assert end_to_end("Connection: X-Forwarded-User, Forwarded", "X-Own: 1") == b"X-Own: 1\r\n"


@pytest.mark.parametrize(
    "name",
    ["Host", "Cookie", "Authorization", "Fumarole-Token", "Origin", "Sec-Fetch-Site",
     "Content-Length", "Transfer-Encoding", "Sec-WebSocket-Key"],
)  # fmt: skip
def test_connection_cannot_name_fields_used_for_authorization(name: str) -> None:
    with pytest.raises(HeadRefused):
        read(f"Connection: keep-alive, {name.upper()}")


@pytest.mark.parametrize("name", ["Connection", "Upgrade"])
def test_an_oversize_list_is_refused(name: str) -> None:
    with pytest.raises(HeadRefused):
        read(f"{name}: " + "a," * 300)


def test_forwarded_fields_keep_order_and_spelling() -> None:
    lines = ("x-B: 2", "Accept: text/html", "X-a:  1", "Origin: http://a", "User-Agent: \xff")
    assert end_to_end(*lines) == (
        b"x-B: 2\r\nAccept: text/html\r\nX-a: 1\r\nOrigin: http://a\r\nUser-Agent: \xff\r\n"
    )


def test_gateway_cookies_are_removed_from_every_field() -> None:
    section = read_section("Cookie: a=1; fumarole=x", "Cookie: __Host-fumarole=y", "cookie: b=2")
    fields = section.fields
    assert fields.cookies == (b"x",)
    assert section.end_to_end == b"Cookie: a=1\r\nCookie: b=2\r\n"


def test_the_fields_that_describe_a_request_are_read() -> None:
    section = read_section(
        "Origin: http://a",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Mode: cors",
        "Sec-Fetch-Dest: empty",
        "Accept: text/html",
        "Accept: */*",
        "Fumarole-Token: t",
        "Authorization: Bearer b",
        "X-Forwarded-For: 1.1.1.1",
        "X-Forwarded-For: 2.2.2.2",
        "Content-Length: 7",
        "Connection: Close",
    )
    fields = section.fields
    assert fields.provenance == (b"http://a", b"none", b"cors", b"empty")
    assert fields.accept == b"text/html, */*"
    assert (fields.token, fields.authorization) == (b"t", b"Bearer b")
    assert fields.forwarded_for == b"1.1.1.1, 2.2.2.2"
    assert (fields.length, fields.chunked, fields.close) == (7, False, True)
    assert b"Authorization" not in section.end_to_end


def test_a_websocket_upgrade_is_recognised_and_its_fields_are_not_forwarded() -> None:
    section = read_section(
        "Upgrade: WebSocket",
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Key: k",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Extensions: a",
        "Sec-WebSocket-Extensions: b",
        "Sec-WebSocket-Protocol: c",
    )
    fields = section.fields
    assert fields.websocket
    assert fields.upgrade_nominated
    assert (fields.socket_key, fields.socket_version) == (b"k", b"13")
    assert (fields.socket_extensions, fields.socket_protocols) == (b"a, b", b"c")
    assert section.end_to_end == b""


def test_an_upgrade_to_another_protocol_is_ignored() -> None:
    fields = read("Upgrade: h2c", "Connection: Upgrade")
    assert not fields.websocket


@pytest.mark.parametrize(
    "host", ["a", "a.b-c_d", "A.EXAMPLE:8443", "127.0.0.1:80", "[::1]", "[::1]:99", "a:"]
)
def test_well_formed_hosts_are_accepted(host: str) -> None:
    assert read(host=f"Host: {host}").host == host


@pytest.mark.parametrize("host", [None, "", "a b", "a,b", "a/b", "a@b", "a:b", "[::1", "a:123456"])
def test_malformed_hosts_are_refused(host: str | None) -> None:
    with pytest.raises(HeadRefused):
        read(host=None if host is None else f"Host: {host}")


def test_start_line_and_fields_must_be_consistent() -> None:
    fields = read()
    check_consistency(read_start_line(b"GET http://A.Example/x HTTP/1.1"), fields)
    with pytest.raises(HeadRefused):
        check_consistency(read_start_line(b"GET http://b.example/x HTTP/1.1"), fields)
    with pytest.raises(HeadRefused):
        check_consistency(read_start_line(b"POST / HTTP/1.0"), read("Transfer-Encoding: chunked"))


@pytest.mark.parametrize(
    ("target", "host", "fits"),
    [
        ("https://a.example", "a.example:443", True),
        ("https://a.example:443/x", "A.example", True),
        ("HTTP://A.example:80/", "a.example:", True),
        ("http://a.example:/", "a.example:80", True),
        ("https://a.example:8443/", "a.example:8443", True),
        ("https://a.example", "a.example:80", False),
        ("http://a.example", "a.example:443", False),
        ("https://a.example:8443", "a.example", False),
        ("https://a.example:443:", "a.example", False),
        ("http://a.example:8080:80", "a.example:8080", False),
        ("https://u@a.example", "a.example", False),
        ("https://", "a.example", False),
    ],
)
def test_the_default_port_may_be_omitted_in_target_or_host(
    target: str, host: str, fits: bool
) -> None:
    start = read_start_line(f"GET {target} HTTP/1.1".encode())
    fields = read(host=f"Host: {host}")
    if fits:
        check_consistency(start, fields)
    else:
        with pytest.raises(HeadRefused):
            check_consistency(start, fields)


def test_the_cache_of_field_names_is_bounded() -> None:
    reader = FieldReader(b"fumarole")
    for number in range(6000):
        reader.read_section(b"Host: a\r\nX-%d: 1\r\n\r\n" % number, None)
    assert len(reader._names.known) <= 4096


def test_hostile_field_names_do_not_fill_the_cache() -> None:
    reader = FieldReader(b"fumarole")
    for number in range(4096):
        reader.read_section(b"Host: a\r\nX-%d: 1\r\n\r\n" % number, None)
    reader.read_section(b"Host: a\r\nUser-Agent: b\r\n\r\n", None)
    assert b"User-Agent" in reader._names.known


LINES = [
    "X-One: 1", "X-One: 2", "x-one: 2", "X-One:3", "X-Two: a  ", "X-Two: ", "Accept: a",
    "Accept: b", "Cookie: fumarole=a; b=c", "Cookie: fumarole=d", "Cookie: b=c",
    "Content-Length: 5",
    "Content-Length: 6", "Content-Length: x", "Transfer-Encoding: chunked", "Connection: close",
    "Connection: X-One", "Connection: keep-alive", "Host: b.example", "Origin: http://a", "Via: x",
    "X-Bad: \x01", "X-Bad: a\rb", " folded: x", "X Bad: 1", "Fumarole-Token: t",
    "Upgrade: websocket",
]  # fmt: skip


def outcome(raw: bytes, last: Section | None) -> dict[str, object] | str:
    try:
        section = READER.read_section(raw, last)
    except HeadRefused as refused:
        return refused.code
    said = {name: getattr(section.fields, name) for name in Fields.__struct_fields__}
    return said | {"end_to_end": section.end_to_end}


VALUES: dict[str, tuple[str, ...]] = {
    "Host": ("a.example", "b.example", "a.example:81", "a,b"),
    "Content-Length": ("5", "6", "x"),
    "Transfer-Encoding": ("chunked", "gzip"),
    "Connection": ("keep-alive", "close", "X-One", "Upgrade", "Host"),
    "Upgrade": ("websocket", "h2c"),
    "Cookie": ("fumarole=a; b=c", "fumarole=d; b=c", "fumarole=a; b=e", "b=c"),
    "Authorization": ("Bearer a", "Bearer b"),
    "Fumarole-Token": ("t", "u"),
    "Accept": ("a", "b"),
    "Origin": ("http://a", "http://b"),
    "Sec-Fetch-Site": ("none", "cross-site"),
    "Sec-Fetch-Mode": ("cors", "navigate"),
    "Sec-Fetch-Dest": ("empty", "document"),
    "Service-Worker": ("script", "other"),
    "X-Forwarded-For": ("1.1.1.1", "2.2.2.2"),
    "Sec-WebSocket-Key": ("k", "l"),
    "Sec-WebSocket-Version": ("13", "8"),
    "Sec-WebSocket-Extensions": ("a", "b"),
    "Sec-WebSocket-Protocol": ("c", "d"),
    "Via": ("x", "y"),
    "X-One": ("1", "2", "", "\x01"),
}
"""At least two values for a field of each meaning."""


def section_of(values: dict[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in values.items()).encode() + b"\r\n"


def agree(sections: list[bytes]) -> None:
    """Check that a section parsed after others means the same as parsed alone."""
    last: Section | None = None
    for raw in sections:
        alone, after = outcome(raw, None), outcome(raw, last)
        assert after == alone
        truncate_cookies = None if last is None else last.template.match(raw, 0)
        if last is not None and truncate_cookies is not None:
            said = {name: getattr(last.fields, name) for name in Fields.__struct_fields__}
            assert said | {"end_to_end": truncate_cookies[1]} == alone
            assert truncate_cookies[0] == len(raw)
        if isinstance(after, str):
            break  # a connection with a refused head is closed
        last = READER.read_section(raw, last)


def test_the_test_values_cover_every_meaning() -> None:
    found = {request_names().meaning(name.encode()) for name in VALUES}
    only_of_answers = {
        Meaning.SET_COOKIE,
        Meaning.CACHE_CONTROL,
        Meaning.SOCKET_ACCEPT,
        Meaning.DATE,
        Meaning.LOCATION,
        Meaning.REFRESH,
    }
    assert found == set(Meaning) - only_of_answers


@pytest.mark.parametrize("name", VALUES)
def test_a_field_with_a_changed_value_is_parsed_again(name: str) -> None:
    """One changed value between two equal sections: each field, with each of its values."""
    first, *others = VALUES[name]
    plain = {"Host": "a.example", "X-Other": "1"}
    # Some fields mean something only beside another one.
    for beside in (plain, plain | {"Upgrade": "websocket"}, plain | {"Origin": "http://a"}):
        for other in others:
            before, after = (section_of(beside | {name: value}) for value in (first, other))
            agree([before, after, before, after])


@given(st.data())
def test_a_section_is_parsed_alike_after_one_with_other_values(data: st.DataObject) -> None:
    """The second section has the names of the first, so its cached meanings are used."""
    either = data.draw(st.sampled_from(["Content-Length", "Transfer-Encoding"]))
    without = data.draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=8)) | {either}
    names = [name for name in VALUES if name == "Host" or name not in without]
    values = {name: VALUES[name][0] for name in names}
    sections = [section_of(values)]
    for _ in range(data.draw(st.integers(1, 6))):
        for name in data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=3)):
            values[name] = data.draw(st.sampled_from(VALUES[name]))
        sections.append(section_of(values))
    agree(sections)


@given(st.lists(st.lists(st.sampled_from(LINES), max_size=4), min_size=2, max_size=5))
def test_a_section_is_parsed_alike_after_any_other(sections: list[list[str]]) -> None:
    agree(
        ["\r\n".join(("Host: a.example", *lines, "", "")).encode("latin-1") for lines in sections]
    )


@pytest.mark.parametrize("byte", range(256))
def test_a_cached_field_with_a_new_value_is_validated_like_the_parser(byte: int) -> None:
    last = READER.read_section(b"Host: a\r\nX: b\r\n\r\n", None)
    for value in (bytes([byte]), b"a%bb" % bytes([byte]), b"a%b" % bytes([byte])):
        raw = b"Host: a\r\nX: %b\r\n\r\n" % value
        assert outcome(raw, last) == outcome(raw, None), raw
        agree([b"Host: a\r\nX: b\r\n\r\n", b"Host: a\r\nX: c\r\n\r\n", raw])


@pytest.mark.parametrize("fields", [1, 2, 128])
def test_an_unbounded_number_of_gateway_cookies_is_too_large(fields: int) -> None:
    def cookies(count: int) -> list[str]:
        return ["Cookie: " + "x=fumarole; " * (count // fields)] * fields

    assert read(*cookies(1024)).cookies == ()
    for one in (cookies(1024 + fields), cookies(13_000)):
        with pytest.raises(HeadRefused) as refused:
            read(*one)
        assert refused.value.code == "head_too_large"


def test_many_lookalike_cookies_of_siblings_block_no_user() -> None:
    many = "; ".join(f"c{n}=" + "fumarole" * 500 for n in range(60))
    assert read(f"Cookie: {many}; fumarole=mine").cookies == (b"mine",)


def test_the_gateway_cookie_is_found_among_many_and_the_app_gets_those_within_the_limit() -> None:
    many = "; ".join(f"c{n}={'x' * 100}" for n in range(2000))
    section = FieldReader(b"fumarole").read_section(
        f"Host: h\r\nCookie: {many}; fumarole=mine\r\nCookie: d=1\r\n\r\n".encode(), None
    )
    assert section.fields.cookies == (b"mine",)
    assert len(section.end_to_end) <= 32768 + len(b"Cookie: \r\n")
    assert section.end_to_end.startswith(b"Cookie: c0=" + b"x" * 100 + b"; c1=")


def test_later_fields_with_shorter_cookies_do_not_replace_those_beyond_the_limit() -> None:
    section = read_section(
        "Cookie: a=1; b=" + "x" * 32768, "Cookie: c=3", "Cookie: fumarole=mine; d=4"
    )
    assert section.fields.cookies == (b"mine",)
    assert section.end_to_end == b"Cookie: a=1\r\n"
