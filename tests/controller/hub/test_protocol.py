from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.hub.protocol import (
    Ping,
    Renew,
    Resize,
    Resume,
    Seen,
    Size,
    attached_text,
    exit_text,
    pong_text,
    read_name,
    read_resume,
    read_text,
    refused_text,
    resized_text,
    revoked_input_text,
    shells_text,
    skipped_text,
)


def read_resize(text: str) -> Size | None:
    message = read_text(text)
    return message.size if isinstance(message, Resize) else None


def test_a_resize_is_read() -> None:
    assert read_resize('{"type":"resize","cols":132,"rows":43}') == Size(132, 43)


def test_unknown_members_are_ignored() -> None:
    assert read_resize('{"type":"resize","cols":1,"rows":2,"pixels":[3]}') == Size(1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '"resize"', '{"type":"pang"}', '{"type":"seen"}',
        '{"type":"seen","offset":1.5}', '{"cols":80,"rows":24}',
        '{"type":"resize"}', '{"type":"resize","cols":80}', '{"type":"resize","cols":0,"rows":24}',
        '{"type":"resize","cols":-1,"rows":24}', '{"type":"resize","cols":true,"rows":24}',
        '{"type":"resize","cols":"80","rows":24}', '{"type":"resize","cols":80.0,"rows":24}',
        '{"type":"resize","cols":1e400,"rows":24}', '{"type":["resize"],"cols":80,"rows":24}',
        '{"type":"resize","cols":80,"rows":24,"x":"' + "y" * 5000 + '"}', "[" * 4000,
        '{"type":"resize","cols":80,"rows":24,"x":' + "[" * 4000,
    ],
)  # fmt: skip
def test_malformed_messages_are_ignored(text: str) -> None:
    assert read_resize(text) is None
    assert not isinstance(read_text(text), Renew | Seen | Ping)


def test_renewals_pings_and_acknowledgements_are_read() -> None:
    assert read_text('{"type":"renew"}') == Renew()
    assert read_text('{"type":"renew","why":"x"}') == Renew()
    assert read_text('{"type":"Renew"}') is None
    assert read_text('{"type":"renew","x":"' + "y" * 5000 + '"}') is None
    assert read_text('{"type":"ping"}') == Ping()
    assert read_text('{"type":"seen","offset":70000}') == Seen(70000)


@given(st.text(max_size=200))
def test_no_text_message_raises(text: str) -> None:
    assert read_text(text) is None


def test_a_query_names_the_resume_offset() -> None:
    assert read_resume({}) is None
    assert read_resume({"stream": "ab"}) is None
    assert read_resume({"after": "0"}) == Resume(0)
    assert read_resume({"after": "-1000000", "stream": "0af"}) == Resume(-1000000, "0af")


@pytest.mark.parametrize("after", ["", "+1", "1.0", "1e3", "x", "1" * 16, "--1", "\u0661", "1\n"])
def test_a_malformed_resume_query_raises(after: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        read_resume({"after": after})


@pytest.mark.parametrize("name", ["", "A", "a b", "a" * 33, "\u00e9", "../x", "a\n"])
def test_shell_names_are_short_and_plain(name: str) -> None:
    with pytest.raises(ValueError, match="letters and digits"):
        read_name(name)
    with pytest.raises(ValueError, match="letters and digits"):
        read_resume({"after": "0", "stream": name})


def test_a_huge_terminal_size_is_clamped() -> None:
    assert read_resize('{"type":"resize","cols":99999999999,"rows":5000}') == Size(4096, 4096)


def test_messages_to_clients_have_their_documented_form() -> None:
    attached = json.loads(attached_text(mode="view", resumed=True, size=Size(80, 24)))
    assert attached == {
        "type": "attached", "mode": "view", "resumed": True, "cols": 80, "rows": 24
    }  # fmt: skip
    assert json.loads(resized_text(Size(1, 2))) == {"type": "resized", "cols": 1, "rows": 2}
    assert json.loads(revoked_input_text()) == {"type": "revoked_input"}
    assert json.loads(skipped_text(7)) == {"type": "skipped", "bytes": 7}
    ended = json.loads(exit_text(code=None, message="lost"))
    assert ended == {"type": "exit", "code": None, "message": "lost"}


def test_resume_messages_have_their_documented_form() -> None:
    begin = ("0af", 5, 7)
    text = attached_text(mode="view", resumed=True, size=Size(80, 24), begin=begin)
    assert json.loads(text) == {
        "type": "attached", "mode": "view", "resumed": True, "cols": 80, "rows": 24,
        "stream": "0af", "offset": 5, "end": 7,
    }  # fmt: skip
    assert json.loads(shells_text(("", "a"))) == {"type": "shells", "shells": ["", "a"]}
    assert json.loads(refused_text("no")) == {"type": "refused", "message": "no"}
    assert json.loads(pong_text()) == {"type": "pong"}
