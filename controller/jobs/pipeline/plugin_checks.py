"""Checks plugin classes when the process starts, before any job uses them. No I/O."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.pipeline.plugin_models import (
    JobFields,
    PluginSettings,
    kind_problems,
    secret_fields,
)
from controller.jobs.spec.model import CARRIED_TYPES, Job

API_VERSION: Final = "1.0"
"""The version of ``controller.plugin_api``. The minor part grows with additions, the major part
with incompatible changes.
"""

UNVERSIONED: Final = "names no api_version"

_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})", re.ASCII)
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
_LONGEST_NAME: Final = 40
HOOKS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "on_create": 2,
        "on_job_start": 2,
        "on_job_monitoring": 1,
        "on_job_complete": 2,
        "on_cleanup": 1,
    }
)
"""The hooks, and how many arguments each has."""

_FIELDS: Final = frozenset(Job.model_fields) | {f"parameters.{one}" for one in CARRIED_TYPES}


def problems_of_plugin(plugin: type[JobPlugin]) -> list[str]:
    """Return why *plugin* cannot run, each as the end of a sentence about it."""
    found = [*_version_problems(plugin.api_version)]
    found += _order_problems(plugin)
    found += _hook_problems(plugin)
    found += _model_problems(plugin)
    found += kind_problems(plugin.companion_kinds)
    if plugin.api_version is not None:
        # Plugins without an api_version are older than these checks.
        found += _name_problems(plugin.name)
        found += _misspelt_hooks(plugin)
        found += _field_problems(plugin)
    return found


def _version_problems(version: object) -> Iterator[str]:
    if version is None:
        return
    matched = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if matched is None:
        yield f'has an api_version that is none: it is a text such as "{API_VERSION}"'
        return
    made_for = tuple(map(int, matched.groups()))
    ours = tuple(map(int, API_VERSION.split(".")))
    if made_for > ours:
        yield (
            f"was made for version {version} of the plugin API, and this controller has "
            f"{API_VERSION}: a newer Fumarole is needed"
        )
    elif made_for[0] < ours[0]:
        yield (
            f"was made for version {version} of the plugin API, and this controller has "
            f"{API_VERSION}: a newer release of the plugin is needed"
        )


def _name_problems(name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield (
            f"has a name that cannot be a part of settings and metrics: up to {_LONGEST_NAME} "
            "lower-case letters, digits and single underscores, a letter first"
        )


def _order_problems(plugin: type[JobPlugin]) -> Iterator[str]:
    for word in ("after", "before"):
        names = getattr(plugin, word)
        if not isinstance(names, tuple | list) or not all(isinstance(one, str) for one in names):
            yield f'has an {word!r} that is no tuple of names, such as ("task",)'


def _hook_problems(plugin: type[JobPlugin]) -> Iterator[str]:
    for name, count in HOOKS.items():
        given = inspect.getattr_static(plugin, name)
        if given is inspect.getattr_static(JobPlugin, name):
            continue
        bound = isinstance(given, staticmethod | classmethod)
        hook = inspect.unwrap(getattr(plugin, name)) if callable(getattr(plugin, name)) else None
        if hook is None or not inspect.iscoroutinefunction(hook):
            yield f"has a hook {name} that is no 'async def'"
        elif not _takes(getattr(plugin, name), count if bound else count + 1):
            expected = ", ".join(["self", *list(_parameters(name))])
            yield f"has a hook {name} that cannot be called as {name}({expected})"


def _takes(hook: Any, count: int) -> bool:
    try:
        inspect.signature(hook).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _parameters(hook: str) -> list[str]:
    return list(inspect.signature(getattr(JobPlugin, hook)).parameters)[1:]


def _misspelt_hooks(plugin: type[JobPlugin]) -> Iterator[str]:
    for name in dir(plugin):
        if name.startswith("on_") and name not in HOOKS:
            meant = difflib.get_close_matches(name, HOOKS, n=1, cutoff=0.0)
            yield f"has a hook {name}, which nobody calls; {meant[0]} is one"


def _field_problems(plugin: type[JobPlugin]) -> Iterator[str]:
    fields: object = plugin.fields
    if not isinstance(fields, Set | tuple | list) or not all(
        isinstance(one, str) for one in fields
    ):
        yield "has 'fields' that are no set of names"
        return
    for name in sorted(set(fields) - _FIELDS):
        meant = difflib.get_close_matches(name, sorted(_FIELDS), n=1)
        yield f"claims the field {name}, which no job has" + (
            f"; {meant[0]} is one" if meant else ""
        )


def _model_problems(plugin: type[JobPlugin]) -> Iterator[str]:
    for word, given, base in (
        ("settings_model", plugin.settings_model, PluginSettings),
        ("job_fields_model", plugin.job_fields_model, JobFields),
    ):
        declared: object = given
        if declared is None:
            continue
        if not (isinstance(declared, type) and issubclass(declared, base)):
            yield f"has a {word} that is no subclass of {base.__name__}"
            continue
        try:
            secret = secret_fields(declared)
        except Exception as error:  # noqa: BLE001 - whatever somebody else's types raise
            yield f"has a {word} that no JSON schema describes: {type(error).__name__}: {error}"
            continue
        if base is JobFields and secret:
            yield (
                f"has the secret job field {secret[0]}, and job fields are shown: "
                "a job's secrets are parameters"
            )
