from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.hub.protocol import (
    Size,
    asks_to_renew,
    attached_text,
    exit_text,
    read_resize,
    resized_text,
    revoked_input_text,
    skipped_text,
)


def test_a_resize_is_read() -> None:
    assert read_resize('{"type":"resize","cols":132,"rows":43}') == Size(132, 43)


def test_members_that_come_later_are_passed_over() -> None:
    assert read_resize('{"type":"resize","cols":1,"rows":2,"pixels":[3]}') == Size(1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '"resize"', '{"type":"ping"}', '{"cols":80,"rows":24}',
        '{"type":"resize"}', '{"type":"resize","cols":80}', '{"type":"resize","cols":0,"rows":24}',
        '{"type":"resize","cols":-1,"rows":24}', '{"type":"resize","cols":true,"rows":24}',
        '{"type":"resize","cols":"80","rows":24}', '{"type":"resize","cols":80.0,"rows":24}',
        '{"type":"resize","cols":1e400,"rows":24}', '{"type":["resize"],"cols":80,"rows":24}',
        '{"type":"resize","cols":80,"rows":24,"x":"' + "y" * 5000 + '"}', "[" * 4000,
        '{"type":"resize","cols":80,"rows":24,"x":' + "[" * 4000,
    ],
)  # fmt: skip
def test_what_is_not_understood_is_passed_over(text: str) -> None:
    assert read_resize(text) is None
    assert asks_to_renew(text) is False


def test_a_renewal_is_read() -> None:
    assert asks_to_renew('{"type":"renew"}') is True
    assert asks_to_renew('{"type":"renew","why":"x"}') is True
    assert asks_to_renew('{"type":"Renew"}') is False
    assert asks_to_renew('{"type":"renew","x":"' + "y" * 5000 + '"}') is False


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    assert read_resize(text) is None
    assert asks_to_renew(text) is False


def test_a_huge_size_is_brought_within_bounds() -> None:
    assert read_resize('{"type":"resize","cols":99999999999,"rows":5000}') == Size(4096, 4096)


def test_messages_to_clients() -> None:
    attached = json.loads(attached_text(mode="view", resumed=True, size=Size(80, 24)))
    assert attached == {
        "type": "attached", "mode": "view", "resumed": True, "cols": 80, "rows": 24
    }  # fmt: skip
    assert json.loads(resized_text(Size(1, 2))) == {"type": "resized", "cols": 1, "rows": 2}
    assert json.loads(revoked_input_text()) == {"type": "revoked_input"}
    assert json.loads(skipped_text(7)) == {"type": "skipped", "bytes": 7}
    ended = json.loads(exit_text(code=None, message="lost"))
    assert ended == {"type": "exit", "code": None, "message": "lost"}
