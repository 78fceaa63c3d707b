from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.connection_quota import (
    MAX_REFUSED,
    MIN_IDLE_SECONDS,
    SCANNED_PER_EVICTION,
    ConnectionQuota,
    Verdict,
)
from gateway.core.limits.overload import Overload, Step


@dataclass(eq=False)
class Connection:
    key: str = ""
    since: float = 0.0

    def idle_since(self) -> float:
        return self.since

    def evict(self) -> None:
        raise AssertionError("the quota names connections, and its user evicts them")


def places(known: int = 0, **limits: int) -> ConnectionQuota[Connection]:
    fields: dict[str, Any] = {"limit": 100, "max_unauthenticated": 10} | limits
    return ConnectionQuota(count_authenticated=lambda: known, **fields)


def test_unauthenticated_connections_are_limited_per_address() -> None:
    some = places()
    here = [Connection("a") for _ in range(10)]
    for one in here:
        assert some.judge_new("a") is Verdict.ACCEPTED
        some.add(one)
        some.add(one)
    assert some.judge_new("a") is Verdict.ADDRESS_FULL
    assert some.judge_new("b") is Verdict.ACCEPTED
    some.remove(here[3])
    some.remove(here[3])
    assert some.judge_new("a") is Verdict.ACCEPTED


def test_connections_of_a_trusted_proxy_are_not_limited_per_address() -> None:
    some = places()
    for _ in range(50):
        some.add(Connection(""))
    assert some.judge_new("") is Verdict.ACCEPTED
    assert len(some.unauthenticated) == 50


def test_the_total_number_of_connections_is_limited() -> None:
    some = places(known=95)
    for address in "abcde":
        assert not some.full
        some.add(Connection(address))
    assert some.full
    assert some.judge_new("f") is Verdict.FULL
    assert some.judge_new("") is Verdict.FULL


def test_far_beyond_a_limit_connections_are_closed_without_a_response() -> None:
    assert places(known=100 + MAX_REFUSED).judge_new("a") is Verdict.DROPPED
    some = places(limit=0)
    for _ in range(10 + MAX_REFUSED):
        assert some.judge_new("a") is not Verdict.DROPPED
        some.add(Connection("a"))
    assert some.judge_new("a") is Verdict.DROPPED


def test_zero_means_no_limit() -> None:
    some = places(limit=0, max_unauthenticated=0, known=10**9)
    for _ in range(5000):
        some.add(Connection("a"))
    assert some.judge_new("a") is Verdict.ACCEPTED


def test_under_memory_pressure_new_connections_are_refused_and_a_flood_is_closed() -> None:
    overload = Overload(100)
    some: ConnectionQuota[Connection] = ConnectionQuota(
        limit=0, max_unauthenticated=0, count_authenticated=lambda: 5, overload=overload
    )
    for step in (Step.NONE, Step.UNAUTHENTICATED, Step.IDLE):
        overload.step = step
        assert some.judge_new("a") is Verdict.ACCEPTED
    overload.step = Step.REQUESTS
    for _ in range(MAX_REFUSED):
        assert some.judge_new("a") is Verdict.OVERLOADED
        some.add(Connection("a"))
    assert some.judge_new("a") is Verdict.DROPPED


def entered(*connections: Connection) -> ConnectionQuota[Connection]:
    some = places()
    for one in connections:
        some.add(one)
    return some


def test_the_oldest_waiting_connections_are_evicted_first() -> None:
    first, at_something, second, young = (
        Connection(since=since) for since in (1.0, math.inf, 2.0, 9.0)
    )
    some = entered(first, at_something, second, young)
    assert some.find_idle(1, now=10.0) == [first]
    assert some.find_idle(4, now=10.0) == [first, second]
    assert some.find_idle(4, now=9.0 + MIN_IDLE_SECONDS) == [first, second, young]


def test_waiting_connections_of_an_address_are_evicted_only_for_that_address() -> None:
    here, there, proxied = Connection("a"), Connection("b"), Connection("")
    some = entered(there, proxied, here)
    assert some.find_idle(9, now=10.0, key="a") == [here]
    assert some.find_idle(9, now=10.0, key="c") == []
    assert some.find_idle(9, now=10.0) == [there, proxied, here]


def test_eviction_examines_few_connections_and_active_ones_last() -> None:
    busy = [Connection("a", math.inf) for _ in range(SCANNED_PER_EVICTION)]
    idle = Connection("a")
    some = entered(*busy, idle)
    assert some.find_idle(1, now=10.0, key="a") == []
    assert some.find_idle(1, now=10.0, key="a") == [idle]
    assert list(some.unauthenticated) == [*busy, idle], "the order of an address is its own"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_a_closed_connection_is_removed_from_the_quota(steps: list[tuple[str, bool]]) -> None:
    some = entered()
    inside: list[Connection] = []
    for key, leaves in steps:
        if leaves and inside:
            some.remove(inside.pop(len(inside) // 2))
        else:
            inside.append(Connection(key))
            some.add(inside[-1])
    assert list(some.unauthenticated) == inside
    for key in "abc":
        here = [one for one in inside if one.key == key]
        assert some.find_idle(99, now=10.0, key=key) == here
    for one in inside:
        some.remove(one)
    assert not some._by_key
