"""Provides the plans, pods and problems that plugins make of a job."""

from __future__ import annotations

from typing import Any

from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.problems import JobRejected
from controller.plugins import PLUGINS
from tests.controller.samples import make_context, make_defaults, make_job, make_plugins


async def plan_of(*, settings: dict[str, str] | None = None, **fields: Any) -> Plan:
    """Return the plan of a job, made by all plugins."""
    context = make_context(defaults=make_defaults(**settings or {}))
    plugins = make_plugins(PLUGINS, context)
    return await Pipeline(plugins, instance="test", namespace="jobs").plan(make_job(**fields))


async def problems_of(**fields: Any) -> dict[str, str]:
    """Return the problems that all plugins report of a job, by path."""
    try:
        await plan_of(**fields)
    except JobRejected as rejected:
        return {one.path: one.message for one in rejected.problems}
    return {}


async def pod_of(**fields: Any) -> dict[str, Any]:
    """Return the spec of a job's pods."""
    plan = await plan_of(**fields)
    spec: dict[str, Any] = plan.volcano_job.manifest()["spec"]["tasks"][0]["template"]["spec"]
    return spec


async def container_of(**fields: Any) -> dict[str, Any]:
    """Return the container of a job's pods."""
    container: dict[str, Any] = (await pod_of(**fields))["containers"][0]
    return container
