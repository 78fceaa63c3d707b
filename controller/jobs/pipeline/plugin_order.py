"""The order of plugins: what each says of the others, sorted. No I/O.

Plugins name those that they run ``after`` and ``before``. Where nothing is said, the order is that
in which the plugins are given, so that one more plugin moves none of the others needlessly.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from shared.errors import FumaroleError

EVERY_OTHER: Final = "*"
"""Stands for all other plugins that do not say otherwise."""


class PluginsRefused(FumaroleError, ValueError):
    """Plugins that cannot run together or at all; each problem is a sentence that names them."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class Placed(Protocol):
    """A plugin, as far as its place is concerned."""

    @property
    def name(self) -> str:
        """What others call it."""
        ...

    @property
    def after(self) -> Sequence[str]:
        """The plugins that run before this one."""
        ...

    @property
    def before(self) -> Sequence[str]:
        """The plugins that run after this one."""
        ...


P = TypeVar("P", bound=Placed)
_Rules = dict[str, dict[str, str]]
"""For each plugin those that run before it, and which of the two says so."""


def order_plugins(
    plugins: Sequence[P], *, known: Collection[str] = (), as_listed: bool = False
) -> list[P]:
    """Return *plugins* in an order that fits everything that they say of each other.

    Args:
        plugins: The plugins that run.
        known: The names of others that there are and that do not run: they may be named too.
        as_listed: Whether ``*`` counts for nothing: an operator has listed all places.

    Raises:
        PluginsRefused: If two have one name, one names another that does not exist, or what they
            say cannot all be so.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    problems = _misnamed(plugins, {*by_name, *known})
    if problems:
        raise PluginsRefused(problems)
    rules = _rules_of(plugins)
    order = _sorted(list(by_name), rules)
    if not as_listed and _add_weak(by_name, rules):
        order = _sorted(list(by_name), rules)
    return [by_name[name] for name in order]


def _misnamed(plugins: Sequence[Placed], known: Collection[str]) -> list[str]:
    names = [plugin.name for plugin in plugins]
    problems = [
        f"two plugins are called {name}" for name in dict.fromkeys(names) if names.count(name) > 1
    ]
    for plugin in plugins:
        for word, others in (("after", plugin.after), ("before", plugin.before)):
            problems += [
                f"the plugin {plugin.name} says that it runs {word} {_missing(other, known)}"
                for other in others
                if other != EVERY_OTHER and (other not in known or other == plugin.name)
            ]
    return problems


def _missing(name: str, known: Collection[str]) -> str:
    if name in known:
        return "itself"
    meant = difflib.get_close_matches(name, sorted(known), n=1)
    return f"{name}, and there is no such plugin" + (f"; {meant[0]} is one" if meant else "")


def _rules_of(plugins: Sequence[Placed]) -> _Rules:
    rules: _Rules = {plugin.name: {} for plugin in plugins}
    for plugin in plugins:
        for other in plugin.after:
            if other in rules:
                rules[plugin.name].setdefault(other, plugin.name)
        for other in plugin.before:
            if other in rules:
                rules[other].setdefault(plugin.name, plugin.name)
    return rules


def _add_weak(plugins: Mapping[str, Placed], rules: _Rules) -> bool:
    """Add what ``*`` says, of each pair of plugins only if nothing else is said of it."""
    weak = False
    for name, plugin in plugins.items():
        others = [other for other in plugins if other != name]
        if EVERY_OTHER in plugin.after:
            weak = True
            for other in others:
                if name not in _all_before(other, rules):
                    rules[name].setdefault(other, name)
        if EVERY_OTHER in plugin.before:
            weak = True
            for other in others:
                if other not in _all_before(name, rules):
                    rules[other].setdefault(name, name)
    return weak


def _all_before(name: str, rules: _Rules) -> set[str]:
    found, open_ends = set[str](), [name]
    while open_ends:
        new = rules[open_ends.pop()].keys() - found
        found |= new
        open_ends += new
    return found


def _sorted(names: Sequence[str], rules: _Rules) -> list[str]:
    """Return *names*, each directly after those that must precede it and do not stand before."""
    placed: dict[str, None] = {}
    path: list[str] = []

    def place(name: str) -> None:
        if name in placed:
            return
        if name in path:
            raise PluginsRefused([_circle([*path[path.index(name) :], name], rules)])
        path.append(name)
        for other in names:
            if other in rules[name]:
                place(other)
        path.pop()
        placed[name] = None

    for name in names:
        place(name)
    return list(placed)


def _circle(path: Sequence[str], rules: _Rules) -> str:
    # The path leads from each plugin to one that must precede it.
    steps = [
        f"{first} runs before {second} (says {rules[second][first]})"
        for second, first in pairwise(path)
    ]
    return f"the plugins can run in no order: {', '.join(reversed(steps))}"
