"""Tests the order in which plugins run."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from controller.jobs.pipeline.plugin_loading import EVERY_OTHER, PluginsRefused, order_plugins
from controller.plugins import PLUGINS


@dataclass(frozen=True)
class One:
    """A plugin's declaration of its place in the order."""

    name: str
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


def order(*plugins: One, **more: bool) -> str:
    return "".join(one.name for one in order_plugins(plugins, **more))  # type: ignore[arg-type]


def test_built_in_plugins_keep_their_order() -> None:
    assert order_plugins(PLUGINS) == list(PLUGINS)


def test_without_constraints_the_given_order_is_kept() -> None:
    assert order(One("c"), One("a"), One("b")) == "cab"


def test_adding_a_plugin_keeps_the_order_of_others() -> None:
    assert order(One("a"), One("b"), One("c"), One("x", after=("a",), before=("b",))) == "axbc"
    assert order(One("a"), One("b"), One("c", before=("a",))) == "cab"
    assert order(One("a", after=("c",)), One("b"), One("c")) == "cab"


def test_default_positions_yield_to_explicit_constraints() -> None:
    last = One("z", after=(EVERY_OTHER,))
    assert order(last, One("a"), One("b")) == "abz"
    assert order(last, One("a", after=("z",)), One("b", after=("a",)), One("c")) == "czab"
    assert order(One("a"), One("b", before=(EVERY_OTHER,))) == "ba"
    # If two plugins want to be last, the first one given yields.
    assert order(last, One("y", after=(EVERY_OTHER,)), One("a")) in ("ayz", "azy")
    assert order(last, One("a"), as_listed=True) == "za"


def test_all_constraints_hold_for_any_input_order() -> None:
    shuffle = random.Random(7)
    for _ in range(50):
        given = list(PLUGINS)
        shuffle.shuffle(given)
        places = {one.name: place for place, one in enumerate(order_plugins(given))}
        for one in given:
            assert all(places[name] < places[one.name] for name in set(one.after) - {"*"})
            assert all(places[name] > places[one.name] for name in set(one.before) - {"*"})
        assert places["proxy"] == len(PLUGINS) - 1


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ([One("a"), One("b"), One("a")], "two plugins are called a"),
        ([One("a", after=("b",))], "a says that it runs after b, and there is no such plugin"),
        ([One("a", before=("a",))], "a says that it runs before itself"),
        (
            [One("a", after=("b",)), One("b", after=("c",)), One("c", after=("a",))],
            "a runs before c (says c), c runs before b (says b), b runs before a (says a)",
        ),
        ([One("a", before=("b",)), One("b", before=("a",))], "no order: a runs before b (says a)"),
    ],
)
def test_contradictory_constraints_are_reported_with_names(
    plugins: list[One], message: str
) -> None:
    with pytest.raises(PluginsRefused) as caught:
        order_plugins(plugins)
    assert message in str(caught.value)


def test_a_constraint_may_name_a_disabled_plugin() -> None:
    assert order_plugins([One("a", after=("b",))], known=["b"])[0].name == "a"
