"""Tests that nothing is left of a job whose plan a plugin no longer makes."""

from __future__ import annotations

from typing import ClassVar

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import Job
from controller.kube.errors import NotFound
from controller.kube.kinds import NETWORK_POLICIES, SECRETS, VCJOBS
from controller.plugins import PLUGINS
from controller.store.instance import read_leadership
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.jobs.two_accounts import TwoAccounts
from tests.controller.samples import make_context, make_job, make_plugins

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


class ComesAndGoes(JobPlugin):
    """A plugin that delays the job at first, and then raises."""

    name: ClassVar[str] = "comes_and_goes"
    broken: ClassVar[bool] = False

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        if self.broken:
            raise ZeroDivisionError
        builder.wait_for("something")


async def test_companions_created_before_a_plugin_raised_are_removed_with_the_job(
    both: TwoAccounts,
    settled: tuple[Parts, InformerCache],
    instance: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    async with parts.store.read() as transaction:
        term = (await read_leadership(transaction)).term
    plugins = make_plugins([*PLUGINS, ComesAndGoes], make_context())
    parts = make_parts(
        kube=both.kube, store=parts.store, informer=informer, term=term, instance=instance,
        pipeline=Pipeline(plugins, instance=instance, namespace="jobs"),
    )  # fmt: skip
    secret = {"token": {"type": "secret", "value": "x"}}
    await parts.submit(make_job(id="undo", parameters=secret))
    await parts.drive("undo", lambda record: record.message == "waiting for something")
    assert await both.admin.get(SECRETS, "j-undo.parameters", "jobs")
    monkeypatch.setattr(ComesAndGoes, "broken", True)
    with pytest.raises(PluginFailed, match="comes_and_goes"):
        await parts.reconciler.reconcile("undo")
    record = await parts.record("undo")
    message = "the plugin comes_and_goes failed in on_create"
    assert (record.state, record.reason, record.message) == ("IN_QUEUE", "plugin", message)
    await parts.commands.end("undo")
    await parts.drive_to_the_end("undo")
    for kind, name in ((SECRETS, "j-undo.parameters"), (NETWORK_POLICIES, "j-undo.network"),
                       (VCJOBS, "j-undo")):  # fmt: skip
        with pytest.raises(NotFound):
            await both.admin.get(kind, name, "jobs")
