from __future__ import annotations

from email.utils import parsedate_to_datetime

from gateway.core.http.response_heads import HttpDate


def test_the_date_field_has_imf_fixdate_form() -> None:
    assert HttpDate(lambda: 784111777.9).field() == b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"


def test_the_date_changes_with_the_second_also_after_the_clock_was_set_back() -> None:
    times = iter((1000.0, 1000.9, 1001.0, 999.0))
    date = HttpDate(lambda: next(times))
    seen = [date.field() for _ in range(4)]
    assert seen[0] is seen[1]
    dates = [parsedate_to_datetime(field[6:-2].decode()).timestamp() for field in seen]
    assert dates == [1000, 1000, 1001, 999]
