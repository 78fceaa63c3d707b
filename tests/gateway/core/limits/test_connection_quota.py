from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.connection_quota import REFUSED_MORE, ConnectionQuota, Verdict
from gateway.core.limits.overload import Overload, Step


def places(known: int = 0, **limits: int) -> ConnectionQuota:
    told: dict[str, Any] = {"most": 100, "most_unauthenticated": 10} | limits
    return ConnectionQuota(known=lambda: known, **told)


def test_strangers_of_one_address_are_so_many() -> None:
    some = places()
    for _ in range(10):
        assert some.judge("a") is Verdict.WELCOME
        some.enter("a")
    assert some.judge("a") is Verdict.CROWDED
    assert some.judge("b") is Verdict.WELCOME
    some.leave("a")
    assert some.judge("a") is Verdict.WELCOME


def test_those_of_a_proxy_are_not_counted_by_address() -> None:
    some = places()
    for _ in range(50):
        some.enter("")
    assert some.judge("") is Verdict.WELCOME
    assert some.unauthenticated == 50


def test_all_together_are_so_many() -> None:
    some = places(known=95)
    for address in "abcde":
        assert not some.full
        some.enter(address)
    assert some.full
    assert some.judge("f") is Verdict.FULL
    assert some.judge("") is Verdict.FULL


def test_far_beyond_a_limit_nobody_is_answered() -> None:
    assert places(known=100 + REFUSED_MORE).judge("a") is Verdict.DROPPED
    some = places(most=0)
    for _ in range(10 + REFUSED_MORE):
        assert some.judge("a") is not Verdict.DROPPED
        some.enter("a")
    assert some.judge("a") is Verdict.DROPPED


def test_zero_is_without_limit() -> None:
    some = places(most=0, most_unauthenticated=0, known=10**9)
    for _ in range(5000):
        some.enter("a")
    assert some.judge("a") is Verdict.WELCOME


@given(st.lists(st.sampled_from("abc"), max_size=50))
def test_whoever_leaves_is_forgotten(entered: list[str]) -> None:
    some = places()
    for key in entered:
        some.enter(key)
    for key in entered:
        some.leave(key)
    assert some.unauthenticated == 0
    assert not some._by_key  # nothing grows with the addresses that were seen


def test_short_of_memory_nobody_is_welcome_and_a_flood_is_not_answered() -> None:
    overload = Overload(100)
    some = ConnectionQuota(most=0, most_unauthenticated=0, known=lambda: 5, overload=overload)
    for step in (Step.NONE, Step.UNAUTHENTICATED, Step.IDLE):
        overload.step = step
        assert some.judge("a") is Verdict.WELCOME
    overload.step = Step.REQUESTS
    for _ in range(REFUSED_MORE):
        assert some.judge("a") is Verdict.OVERLOADED
        some.enter("a")
    assert some.judge("a") is Verdict.DROPPED
