"""Reads the configuration of a controller: its settings, and the plugins that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.pipeline.plugin_loading import LoadedPlugins, PluginsRefused, load_plugins
from controller.jobs.pipeline.plugin_models import (
    PluginSettings,
    read_plugin_settings,
    setting_names,
)
from controller.jobs.spec.problems import Problem
from controller.plugins import PLUGINS
from controller.settings import ControllerSettings, read_settings
from shared.settings import Environment, text


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a controller."""

    settings: ControllerSettings
    plugins: LoadedPlugins


def read_configuration(environment: Environment) -> Configuration:
    """Return the settings and the loaded plugins; *environment* collects every problem."""
    settings = read_settings(environment)
    plugins = LoadedPlugins(())
    try:
        plugins = load_plugins(PLUGINS, settings.plugins)
    except PluginsRefused as refused:
        environment.problems += refused.problems
    environment.warnings += plugins.warnings
    plugins = replace(plugins, settings=dict(read_own_settings(environment, plugins.classes)))
    _check_hook_seconds(environment, settings, plugins)
    return Configuration(settings, plugins)


def _check_hook_seconds(
    environment: Environment, settings: ControllerSettings, plugins: LoadedPlugins
) -> None:
    names = {plugin.name for plugin in plugins.classes}
    if names and (unknown := sorted(settings.hook_seconds.named.keys() - names)):
        text = f"names plugins that do not run: {', '.join(unknown)}"
        environment.problem("FUMAROLE_CONTROLLER_HOOK_SECONDS", text)


def read_own_settings(
    environment: Environment, plugins: Sequence[type[JobPlugin]]
) -> Iterator[tuple[str, PluginSettings]]:
    """Yield each plugin's own settings, if it has any; *environment* collects every problem."""
    owners: dict[str, str] = {}
    for plugin in plugins:
        model = plugin.settings_model
        if model is None:
            continue
        names = setting_names(plugin.name, model)
        for name in names.values():
            if owners.setdefault(name, plugin.name) != plugin.name:
                twice = f"is a setting of both plugins {owners[name]} and {plugin.name}"
                environment.problem(name, twice)
        given = {field: environment.optional(name, text) for field, name in names.items()}
        said = {field: value for field, value in given.items() if value is not None}
        try:
            read = read_plugin_settings(model, said)
        except Exception as error:  # noqa: BLE001 - third-party validators may raise anything
            wrong = f"cannot be read: {type(error).__name__}"
            environment.problem(f"FUMAROLE_PLUGIN_{plugin.name.upper()}_*", wrong)
            continue
        if isinstance(read, PluginSettings):
            yield plugin.name, read
            continue
        for problem in read:
            _report(environment, problem, plugin.name, names)


def _report(
    environment: Environment, problem: Problem, plugin: str, names: Mapping[str, str]
) -> None:
    # The rest of the path is within a list or an object; without a field it concerns several.
    field = re.split(r"[.\[]", problem.path)[0]
    name = names.get(field, f"FUMAROLE_PLUGIN_{plugin.upper()}_*")
    rest = problem.path.removeprefix(field).lstrip(".")
    if problem.message == "is missing" and not rest:
        environment.problem(name, "is not set")
    else:
        environment.problem(name, f"is wrong: {rest + ': ' if rest else ''}{problem.message}")
