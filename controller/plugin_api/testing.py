"""For tests of plugins: the plan of a job, without a cluster, a store or Redis.

The plugin runs after ``task``, which creates the pods, with the defaults of the deployment. It is
checked as at the start of a controller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.configuration import read_own_settings
from controller.jobs.pipeline.builder import Companion
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin, PluginContext
from controller.jobs.pipeline.plugin_checks import problems_of_plugin
from controller.jobs.pipeline.plugin_loading import LoadedPlugins, PluginsRefused, make_loaded
from controller.jobs.spec.model import Job
from controller.plugins.task import TaskPlugin
from controller.settings import read_settings
from controller.store.jobs.relations import Caller, Peer
from shared.settings import Environment

__all__ = ["Planned", "make_job", "make_plugin", "plan_job"]

INSTANCE = "test"
NAMESPACE = "jobs"


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a job: the manifest of its VolcanoJob, and its companions."""

    manifest: Mapping[str, Any]
    companions: tuple[Companion, ...]


def make_job(**fields: Any) -> Job:
    """Return a job with the required fields, and *fields*.

    Raises:
        pydantic.ValidationError: If they are invalid.
    """
    least = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}
    return Job.model_validate(least | fields)


def make_plugin(plugin: type[JobPlugin], *, settings: Mapping[str, str] | None = None) -> JobPlugin:
    """Return the plugin as a controller creates it with the environment *settings*.

    Its calls to sessions, links, peers and the ledger have no effect.

    Raises:
        PluginsRefused: If a controller would not start with it.
    """
    (made,) = _make([plugin], settings or {})
    return made


async def plan_job(
    plugin: type[JobPlugin], job: Job, *, settings: Mapping[str, str] | None = None
) -> Planned:
    """Return the plan of *job*, as at the check before its acceptance.

    Raises:
        JobRejected: With every problem of the job.
        PluginFailed: If the plugin fails otherwise.
        PluginsRefused: If a controller would not start with the plugin.
    """
    plugins = _make([TaskPlugin, plugin], settings or {})
    pipeline = Pipeline(plugins, instance=INSTANCE, namespace=NAMESPACE)
    pipeline.refuse_unclaimed(job)
    plan = await pipeline.plan(job)
    return Planned(plan.volcano_job.manifest(), plan.companions)


def _make(plugins: Sequence[type[JobPlugin]], settings: Mapping[str, str]) -> list[JobPlugin]:
    problems = [
        f"the plugin {plugin.name} {problem}"
        for plugin in plugins
        for problem in problems_of_plugin(plugin)
    ]
    environment = Environment(settings)
    own = {} if problems else dict(read_own_settings(environment, plugins))
    if problems := [*problems, *environment.problems]:
        raise PluginsRefused(problems)
    defaults = read_settings(Environment({"FUMAROLE_CONTROLLER_FAIR_SHARE": "off", **settings}))
    nothing = _Nothing()
    context = PluginContext(
        instance=INSTANCE,
        jobs=defaults.jobs,
        sessions=nothing,
        control=nothing,
        ledger=nothing,
        links=nothing,
        peers=nothing,
    )
    return make_loaded(LoadedPlugins(tuple(plugins), settings=own), context)


class _Nothing:
    """Stands for the rest of a controller, without any effect."""

    async def routes_may_have_changed(self, job_id: str) -> None:
        return

    async def end_sessions(self, job_id: str, *, reason: str) -> None:
        return

    async def end_if_over(self, job_ids: Collection[str]) -> dict[str, float | None]:
        return dict.fromkeys(job_ids)

    async def write_up(self, job_id: str) -> float | None:
        return None

    async def expose(self, job: Job) -> None:
        return

    async def release(self, job_id: str) -> None:
        return

    async def find(self, job_ids: Collection[str]) -> dict[str, Peer]:
        return {}

    async def callers_of(self, job_id: str) -> list[Caller]:
        return []

    async def has_ended(self, job_id: str) -> None:
        return
