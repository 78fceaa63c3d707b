from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.unauthenticated import LOOKED_AT, WAITED_SECONDS, Unauthenticated


@dataclass(eq=False)
class Connection:
    key: str = ""
    since: float = 0.0

    def waits_since(self) -> float:
        return self.since


def entered(*connections: Connection) -> Unauthenticated[Connection]:
    some: Unauthenticated[Connection] = Unauthenticated()
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
    assert list(some.every()) == [*busy, idle], "the order of an address is its own"


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
    assert list(some.every()) == inside
    for key in "abc":
        here = [one for one in inside if one.key == key]
        assert some.idle(99, now=10.0, key=key) == here
    for one in inside:
        some.leave(one)
    assert not some._at
