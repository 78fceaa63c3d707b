"""Reads all that configures a controller: its settings, and the plugins that they name."""

from __future__ import annotations

from dataclasses import dataclass

from controller.jobs.pipeline.plugin_loading import LoadedPlugins, load_plugins
from controller.jobs.pipeline.plugin_order import PluginsRefused
from controller.plugins import PLUGINS
from controller.settings import ControllerSettings, read_settings
from shared.settings import Environment


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a controller runs with."""

    settings: ControllerSettings
    plugins: LoadedPlugins


def read_configuration(environment: Environment) -> Configuration:
    """Return the settings, and the plugins loaded; *environment* collects every problem."""
    settings = read_settings(environment)
    plugins = LoadedPlugins(())
    try:
        plugins = load_plugins(PLUGINS, settings.plugins)
    except PluginsRefused as refused:
        environment.problems += refused.problems
    environment.warnings += plugins.warnings
    _check_hook_seconds(environment, settings, plugins)
    return Configuration(settings, plugins)


def _check_hook_seconds(
    environment: Environment, settings: ControllerSettings, plugins: LoadedPlugins
) -> None:
    names = {plugin.name for plugin in plugins.classes}
    if names and (unknown := sorted(settings.hook_seconds.named.keys() - names)):
        text = f"names {', '.join(unknown)}, and no such plugin runs"
        environment.problem("FUMAROLE_CONTROLLER_HOOK_SECONDS", text)
