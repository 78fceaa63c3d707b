"""Finds the plugins that run, checks them, and puts them into their order.

Everything that is wrong with them is found here, when the process starts or its settings are
checked: only what is chosen is loaded, so a package that is installed and not named runs no code.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.plugin import JobPlugin, PluginContext
from controller.jobs.pipeline.plugin_checks import UNVERSIONED, problems_of_plugin
from controller.jobs.pipeline.plugin_metrics import PluginMetrics
from controller.jobs.pipeline.plugin_models import PluginSettings
from controller.jobs.pipeline.plugin_order import PluginsRefused, order_plugins
from controller.settings import PluginChoice

ENTRY_POINTS: Final = "fumarole.plugins"

INDISPENSABLE: Final = "task"
"""Makes the pods: without it every job would be refused."""

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
"""The built-in plugins of 0.1, when a list named all that run. A later one cannot be left out by a
list that was written before there was such a plugin."""


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """The plugins that run, in their order, and what their operator should know of them."""

    classes: tuple[type[JobPlugin], ...]
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, PluginSettings] = field(default_factory=dict)


def load_plugins(known: Sequence[type[JobPlugin]], choice: PluginChoice) -> LoadedPlugins:
    """Return the plugins that run: all *known* ones but the disabled, and the extra ones.

    Raises:
        PluginsRefused: With everything that is wrong, each sentence with the plugins' names.
    """
    ours = {plugin.name: plugin for plugin in known}
    names, notes = _listed(choice, ours) if choice.listed is not None else _chosen(choice, ours)
    installed = _installed() if set(names) - ours.keys() else {}
    problems = _unknown(names, {*ours, *installed})
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
        notes.append(f"the order in FUMAROLE_CONTROLLER_PLUGINS cannot be; they run as {order}")
    return LoadedPlugins(tuple(ordered), tuple(notes))


def _installed() -> dict[str, list[EntryPoint]]:
    """Return what other packages declare: that of every package that is installed is read."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, []).append(point)
    return found


def make_loaded(
    loaded: LoadedPlugins, context: PluginContext, registry: CollectorRegistry | None = None
) -> list[JobPlugin]:
    """Return the plugins, each made with what it may use.

    Args:
        loaded: The plugins.
        context: What all of them may use.
        registry: Where their metrics are collected; None where nobody looks at them.

    Raises:
        PluginsRefused: If one of them cannot be made.
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
    problems = [f"the plugin {name} is named twice" for name in _twice(choice.extra)]
    problems += [
        f"the plugin {name} is built in: it runs without being named"
        for name in choice.extra
        if name in ours
    ]
    for name in choice.disabled:
        if name not in ours:
            problems.append(f"{_no_plugin(name, ours)} among the built-in ones")
        elif name == INDISPENSABLE:
            problems.append(f"the plugin {name} makes the pods: it cannot be disabled")
    if problems:
        raise PluginsRefused(problems)
    return [*(name for name in ours if name not in choice.disabled), *choice.extra], []


def _listed(
    choice: PluginChoice, ours: Mapping[str, type[JobPlugin]]
) -> tuple[list[str], list[str]]:
    """Return what a list of all plugins names, and the built-in ones that it could not know."""
    names = list(choice.listed or ())
    problems = [f"the plugin {name} is named twice" for name in _twice(names)]
    if problems:
        raise PluginsRefused(problems)
    added = [name for name in names if name not in ours]
    left_out = [name for name in ours if name not in names and name in LISTED_ONCE]
    newer = [name for name in ours if name not in names and name not in LISTED_ONCE]
    instead = [
        f"{setting}={','.join(given)}"
        for setting, given in (
            ("FUMAROLE_CONTROLLER_EXTRA_PLUGINS", added),
            ("FUMAROLE_CONTROLLER_DISABLED_PLUGINS", left_out),
        )
        if given
    ]
    notes = [
        "FUMAROLE_CONTROLLER_PLUGINS goes with the next minor version; "
        + (f"say {' '.join(instead)} instead" if instead else "leave it out")
    ]
    if newer:
        notes.append(f"FUMAROLE_CONTROLLER_PLUGINS does not know {', '.join(newer)}: run as well")
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
    except (Exception, SystemExit) as error:  # whatever importing it raises
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
    except (Exception, SystemExit) as error:  # whatever somebody else's code raises
        text = f"the plugin {plugin.name} cannot be made: {described(error)}"
        raise PluginsRefused([text]) from error


def described(error: BaseException) -> str:
    """Return what *error* says, and of which type it is."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
