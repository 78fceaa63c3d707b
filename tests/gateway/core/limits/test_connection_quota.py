from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.connection_quota import (
    LOOKED_AT,
    REFUSED_MORE,
    WAITED_SECONDS,
    ConnectionQuota,
    Verdict,
)
from gateway.core.limits.overload import Overload, Step


@dataclass(eq=False)
class Connection:
    key: str = ""
    since: float = 0.0

    def waits_since(self) -> float:
        return self.since


def places(known: int = 0, **limits: int) -> ConnectionQuota[Connection]:
    told: dict[str, Any] = {"most": 100, "most_unauthenticated": 10} | limits
    return ConnectionQuota(known=lambda: known, **told)


def test_strangers_of_one_address_are_so_many() -> None:
    some = places()
    here = [Connection("a") for _ in range(10)]
    for one in here:
        assert some.judge("a") is Verdict.WELCOME
        some.enter(one)
        some.enter(one)
    assert some.judge("a") is Verdict.CROWDED
    assert some.judge("b") is Verdict.WELCOME
    some.leave(here[3])
    some.leave(here[3])
    assert some.judge("a") is Verdict.WELCOME


def test_those_of_a_proxy_are_not_counted_by_address() -> None:
    some = places()
    for _ in range(50):
        some.enter(Connection(""))
    assert some.judge("") is Verdict.WELCOME
    assert len(some.unauthenticated) == 50


def test_all_together_are_so_many() -> None:
    some = places(known=95)
    for address in "abcde":
        assert not some.full
        some.enter(Connection(address))
    assert some.full
    assert some.judge("f") is Verdict.FULL
    assert some.judge("") is Verdict.FULL


def test_far_beyond_a_limit_nobody_is_answered() -> None:
    assert places(known=100 + REFUSED_MORE).judge("a") is Verdict.DROPPED
    some = places(most=0)
    for _ in range(10 + REFUSED_MORE):
        assert some.judge("a") is not Verdict.DROPPED
        some.enter(Connection("a"))
    assert some.judge("a") is Verdict.DROPPED


def test_zero_is_without_limit() -> None:
    some = places(most=0, most_unauthenticated=0, known=10**9)
    for _ in range(5000):
        some.enter(Connection("a"))
    assert some.judge("a") is Verdict.WELCOME


def test_short_of_memory_nobody_is_welcome_and_a_flood_is_not_answered() -> None:
    overload = Overload(100)
    some: ConnectionQuota[Connection] = ConnectionQuota(
        most=0, most_unauthenticated=0, known=lambda: 5, overload=overload
    )
    for step in (Step.NONE, Step.UNAUTHENTICATED, Step.IDLE):
        overload.step = step
        assert some.judge("a") is Verdict.WELCOME
    overload.step = Step.REQUESTS
    for _ in range(REFUSED_MORE):
        assert some.judge("a") is Verdict.OVERLOADED
        some.enter(Connection("a"))
    assert some.judge("a") is Verdict.DROPPED


def entered(*connections: Connection) -> ConnectionQuota[Connection]:
    some = places()
    for one in connections:
        some.enter(one)
    return some


def test_those_that_have_waited_for_long_make_room_the_oldest_first() -> None:
    first, at_something, second, young = (
        Connection(since=since) for since in (1.0, math.inf, 2.0, 9.0)
    )
    some = entered(first, at_something, second, young)
    assert some.idle(1, now=10.0) == [first]
    assert some.idle(4, now=10.0) == [first, second]
    assert some.idle(4, now=9.0 + WAITED_SECONDS) == [first, second, young]


def test_those_of_an_address_make_room_for_it_alone() -> None:
    here, there, proxied = Connection("a"), Connection("b"), Connection("")
    some = entered(there, proxied, here)
    assert some.idle(9, now=10.0, key="a") == [here]
    assert some.idle(9, now=10.0, key="c") == []
    assert some.idle(9, now=10.0) == [there, proxied, here]


def test_a_few_are_looked_at_and_those_at_something_come_last() -> None:
    busy = [Connection("a", math.inf) for _ in range(LOOKED_AT)]
    idle = Connection("a")
    some = entered(*busy, idle)
    assert some.idle(1, now=10.0, key="a") == []
    assert some.idle(1, now=10.0, key="a") == [idle]
    assert list(some.unauthenticated) == [*busy, idle], "the order of an address is its own"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_what_left_is_kept_nowhere(steps: list[tuple[str, bool]]) -> None:
    some = entered()
    inside: list[Connection] = []
    for key, leaves in steps:
        if leaves and inside:
            some.leave(inside.pop(len(inside) // 2))
        else:
            inside.append(Connection(key))
            some.enter(inside[-1])
    assert list(some.unauthenticated) == inside
    for key in "abc":
        here = [one for one in inside if one.key == key]
        assert some.idle(99, now=10.0, key=key) == here
    for one in inside:
        some.leave(one)
    assert not some._by_key
