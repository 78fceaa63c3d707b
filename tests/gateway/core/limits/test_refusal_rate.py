from __future__ import annotations

import pytest

from gateway.core.access.refusals import REFUSALS
from gateway.core.limits.rates import RefusalRate
from tests.clock import Clock

COUNTED = [refusal for refusal in REFUSALS.values() if refusal.status in (401, 403, 404)]
FREE = [refusal for refusal in REFUSALS.values() if refusal.status not in (401, 403, 404)]


def test_a_burst_of_refusals_is_sent_and_then_the_rate() -> None:
    clock = Clock(1000.0)
    rate = RefusalRate(2, clock=clock)
    for number in range(20):
        refusal = COUNTED[number % len(COUNTED)]
        assert rate.judge(refusal, "192.0.2.1") is refusal
    limited = rate.judge(COUNTED[0], "192.0.2.1")
    assert (limited.status, limited.code, limited.closes) == (429, "too_many_refusals", True)
    assert limited.retry_after_seconds == 1
    clock.now += 0.5
    assert rate.judge(COUNTED[0], "192.0.2.1") is COUNTED[0]
    assert rate.judge(COUNTED[0], "192.0.2.1").status == 429


def test_addresses_are_limited_separately_and_an_ipv6_64_together() -> None:
    rate = RefusalRate(1, clock=Clock(1000.0))
    for number in range(10):
        assert rate.judge(COUNTED[0], f"2001:db8::{number}") is COUNTED[0]
    assert rate.judge(COUNTED[0], "2001:db8::ffff").status == 429
    assert rate.judge(COUNTED[0], "2001:db8:0:1::1") is COUNTED[0]
    assert rate.judge(COUNTED[0], "192.0.2.1") is COUNTED[0]


@pytest.mark.parametrize("refusal", FREE, ids=lambda refusal: refusal.code)
def test_other_refusals_are_neither_counted_nor_changed(refusal: object) -> None:
    rate = RefusalRate(1, clock=Clock(1000.0))
    for _ in range(100):
        assert rate.judge(refusal, "192.0.2.1") is refusal  # type: ignore[arg-type]  # one of FREE
    assert rate.judge(COUNTED[0], "192.0.2.1") is COUNTED[0]


def test_zero_means_no_limit() -> None:
    rate = RefusalRate(0, clock=Clock(1000.0))
    assert {rate.judge(COUNTED[0], "192.0.2.1").status for _ in range(5000)} == {COUNTED[0].status}
