"""Finds the plugins to run, checks them, and orders them.

All problems are found here, when the process starts or its settings are checked. Only chosen
plugins are imported: an installed package that no setting names runs no code.

Plugins name the plugins that they run ``after`` and ``before``. Otherwise the given order stays, so
that an additional plugin does not reorder the others.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.plugin import JobPlugin, PluginContext
from controller.jobs.pipeline.plugin_checks import UNVERSIONED, problems_of_plugin
from controller.jobs.pipeline.plugin_metrics import PluginMetrics
from controller.jobs.pipeline.plugin_models import PluginSettings
from controller.settings import PluginChoice
from shared.errors import FumaroleError

_EXTRA: Final = "FUMAROLE_CONTROLLER_EXTRA_PLUGINS"
_DISABLED: Final = "FUMAROLE_CONTROLLER_DISABLED_PLUGINS"
_LISTED: Final = "FUMAROLE_CONTROLLER_PLUGINS"

EVERY_OTHER: Final = "*"
"""Stands for all other plugins without a constraint of their own."""


class PluginsRefused(FumaroleError, ValueError):
    """Plugins cannot run together or at all; each problem is a sentence that names them."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class _Placed(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def after(self) -> Sequence[str]: ...
    @property
    def before(self) -> Sequence[str]: ...


P = TypeVar("P", bound=_Placed)
_Rules = dict[str, dict[str, str]]
"""For each plugin the plugins that run before it, and the one of the two with the constraint."""


def order_plugins(
    plugins: Sequence[P], *, known: Collection[str] = (), as_listed: bool = False
) -> list[P]:
    """Return *plugins* in an order that fits all their constraints.

    Args:
        plugins: The plugins that run.
        known: Names of other plugins that exist and do not run: constraints may name them, too.
        as_listed: Whether ``*`` is ignored: an operator has listed the whole order.

    Raises:
        PluginsRefused: If two have the same name, one names an unknown plugin, or the constraints
            contradict each other.
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


def _misnamed(plugins: Sequence[_Placed], known: Collection[str]) -> list[str]:
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


def _rules_of(plugins: Sequence[_Placed]) -> _Rules:
    rules: _Rules = {plugin.name: {} for plugin in plugins}
    for plugin in plugins:
        for other in plugin.after:
            if other in rules:
                rules[plugin.name].setdefault(other, plugin.name)
        for other in plugin.before:
            if other in rules:
                rules[other].setdefault(plugin.name, plugin.name)
    return rules


def _add_weak(plugins: Mapping[str, _Placed], rules: _Rules) -> bool:
    """Add the constraints of ``*`` for each pair of plugins without another constraint."""
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
    """Return *names*, each directly after those that must precede it."""
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
    # Each plugin in the path must follow the next one.
    steps = [
        f"{first} runs before {second} (says {rules[second][first]})"
        for second, first in pairwise(path)
    ]
    return f"the plugins can run in no order: {', '.join(reversed(steps))}"


ENTRY_POINTS: Final = "fumarole.plugins"

INDISPENSABLE: Final = "task"
"""The task plugin creates the pods: without it every job would be refused."""

LISTED_ONCE: Final = frozenset(
    {
        "task",
        "kata_container",
        "parameter",
        "file_mount",
        "multi_node",
        "shared_memory",
        "network_limit",
        "fair_share",
        "expiry",
        "accounting",
        "connect_to_job",
        "ingress",
        "miscellaneous",
        "minikube",
        "proxy",
    }
)
"""The built-in plugins of 0.1, when a list named all plugins that run. A list from before a plugin
existed cannot leave it out.
"""


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """The plugins that run, in order, and warnings for the operator."""

    classes: tuple[type[JobPlugin], ...]
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, PluginSettings] = field(default_factory=dict)


def load_plugins(known: Sequence[type[JobPlugin]], choice: PluginChoice) -> LoadedPlugins:
    """Return the plugins that run: all *known* ones except the disabled, and the extra ones.

    Raises:
        PluginsRefused: With all problems, each with the names of the plugins.
    """
    ours = {plugin.name: plugin for plugin in known}
    names, notes = _listed(choice, ours) if choice.listed is not None else _chosen(choice, ours)
    installed = _installed() if set(names) - ours.keys() else {}
    setting = _EXTRA if choice.listed is None else _LISTED
    problems = [f"{setting}: {one}" for one in _unknown(names, {*ours, *installed})]
    loaded: dict[str, type[JobPlugin]] = {}
    for name in dict.fromkeys(names):
        try:
            if name in ours or name in installed:
                loaded[name] = ours.get(name) or _loaded(name, installed[name])
        except PluginsRefused as refused:
            problems += refused.problems
    if problems:
        raise PluginsRefused(problems)
    for name, plugin in loaded.items():
        if name not in ours and plugin.api_version is None:
            notes.append(_unversioned(name))
    others = {*ours, *installed} - loaded.keys()
    listed = choice.listed is not None
    ordered = order_plugins(list(loaded.values()), known=others, as_listed=listed)
    if listed and [one.name for one in ordered] != list(loaded):
        order = ", ".join(one.name for one in ordered)
        notes.append(f"the order in {_LISTED} cannot be; they run as {order}")
    return LoadedPlugins(tuple(ordered), tuple(notes))


def _installed() -> dict[str, list[EntryPoint]]:
    """Return what all installed packages declare."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, []).append(point)
    return found


def make_loaded(
    loaded: LoadedPlugins, context: PluginContext, registry: CollectorRegistry | None = None
) -> list[JobPlugin]:
    """Create and return the plugins.

    Args:
        loaded: The plugins.
        context: The services that all of them may use.
        registry: The registry of their metrics; None: no metrics.

    Raises:
        PluginsRefused: If one cannot be created.
    """
    collected = registry if registry is not None else CollectorRegistry()
    return [
        _made(
            plugin,
            replace(
                context,
                settings=loaded.settings.get(plugin.name),
                metrics=PluginMetrics(plugin.name, collected),
            ),
        )
        for plugin in loaded.classes
    ]


def _chosen(
    choice: PluginChoice, ours: Mapping[str, type[JobPlugin]]
) -> tuple[list[str], list[str]]:
    problems = [f"{_EXTRA}: the plugin {name} is named twice" for name in _twice(choice.extra)]
    problems += [
        f"{_EXTRA}: the plugin {name} is built in: it runs without being named"
        for name in choice.extra
        if name in ours
    ]
    for name in choice.disabled:
        if name not in ours:
            problems.append(f"{_DISABLED}: {_no_plugin(name, ours)} among the built-in ones")
        elif name == INDISPENSABLE:
            problems.append(f"{_DISABLED}: the plugin {name} makes the pods: it cannot be disabled")
    if problems:
        raise PluginsRefused(problems)
    return [*(name for name in ours if name not in choice.disabled), *choice.extra], []


def _listed(
    choice: PluginChoice, ours: Mapping[str, type[JobPlugin]]
) -> tuple[list[str], list[str]]:
    """Return the plugins of a list, and the built-in ones that are newer than the list."""
    names = list(choice.listed or ())
    problems = [f"{_LISTED}: the plugin {name} is named twice" for name in _twice(names)]
    if problems:
        raise PluginsRefused(problems)
    added = [name for name in names if name not in ours]
    left_out = [name for name in ours if name not in names and name in LISTED_ONCE]
    newer = [name for name in ours if name not in names and name not in LISTED_ONCE]
    instead = [
        f"{setting}={','.join(given)}"
        for setting, given in (
            (_EXTRA, added),
            (_DISABLED, left_out),
        )
        if given
    ]
    notes = [
        f"{_LISTED} goes with the next minor version; "
        + (f"say {' '.join(instead)} instead" if instead else "leave it out")
    ]
    if newer:
        notes.append(f"{_LISTED} does not know {', '.join(newer)}: run as well")
    return [*names, *newer], notes


def _twice(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def _unknown(names: Sequence[str], known: Collection[str]) -> list[str]:
    return [_no_plugin(name, known) for name in names if name not in known]


def _no_plugin(name: str, known: Collection[str]) -> str:
    meant = difflib.get_close_matches(name, sorted(known), n=1)
    return f"there is no plugin {name}" + (f" ({meant[0]} is one)" if meant else "")


def _unversioned(name: str) -> str:
    text = f"the plugin {name} {UNVERSIONED}: it was written before there was controller.plugin_api"
    text += ", and the next minor version does not run it"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return text


def _loaded(name: str, points: Sequence[EntryPoint]) -> type[JobPlugin]:
    sources = sorted({point.dist.name if point.dist else "?" for point in points})
    if len(points) > 1:
        raise PluginsRefused([f"several packages have a plugin {name}: {', '.join(sources)}"])
    which = f"the plugin {name} of {sources[0]}"
    try:
        found = points[0].load()
    except (Exception, SystemExit) as error:  # an import may raise anything
        raise PluginsRefused([f"{which} cannot be loaded: {described(error)}"]) from error
    if not (isinstance(found, type) and issubclass(found, JobPlugin)):
        raise PluginsRefused([f"{which} is no JobPlugin"])
    if getattr(found, "name", None) != name:
        raise PluginsRefused([f"{which} does not call itself {name}"])
    problems = problems_of_plugin(found)
    if problems:
        raise PluginsRefused([f"{which} {problem}" for problem in problems])
    return found


def _made(plugin: type[JobPlugin], context: PluginContext) -> JobPlugin:
    try:
        return plugin(context)
    except (Exception, SystemExit) as error:  # third-party code may raise anything
        text = f"the plugin {plugin.name} cannot be made: {described(error)}"
        raise PluginsRefused([text]) from error


def described(error: BaseException) -> str:
    """Return the type and the message of *error*."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
