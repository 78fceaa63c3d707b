"""Runs the plugins' hooks in order, and has those that ran recorded."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, cast

from controller.jobs.pipeline.border import (
    BadResult,
    Call,
    HookName,
    HookRecorder,
    PluginBorder,
    PluginFailed,
    RanHook,
    due_time,
    due_times,
    nothing,
)
from controller.jobs.pipeline.builder import (
    Companion,
    JobBuilder,
    NestedMounts,
    SharedObject,
    check_builder,
    checked_problems,
    tasks_of_job,
)
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.pipeline.plugin_models import CompanionKind, JobFields, complete_companions
from controller.jobs.spec.accepted import public_spec
from controller.jobs.spec.job_paths import problems_with
from controller.jobs.spec.model import BASE_FIELDS, Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.loop_turn import LoopTurn
from controller.store.database import Transaction
from controller.store.errors import StoreUnavailable
from controller.store.instance import find_capabilities
from controller.store.jobs.folders import HeldPlace
from controller.store.jobs.hook_failures import (
    HookFailure,
)
from controller.store.jobs.progress import (
    Hook,
    HookState,
)
from controller.volcano.manifest import VolcanoJob
from controller.volcano.names import (
    ATTEMPT_ANNOTATION,
    CREATED_ANNOTATION,
    SPEC_ANNOTATION,
    labels_of,
    volcano_job_name,
)
from controller.volcano.preflight import (
    Capabilities,
    annotation_findings,
    findings,
    fit_init_containers,
)

RECORD_SECONDS: Final = 0.1
"""Hooks that run within this time are recorded together."""

_OURS: Final = "controller.plugins."
_HOOK_NAMES: Final[Mapping[Hook, HookName]] = MappingProxyType(
    {"start": "on_job_start", "complete": "on_job_complete", "cleanup": "on_cleanup"}
)
_NONE_FAILED: Final[Mapping[str, HookFailure]] = MappingProxyType({})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan that the plugins make for a job.

    - ``shared``: objects that must exist before it.
    - ``waiting``: the prerequisites that its VolcanoJob waits for.
    - ``places``: the places of the owner's files, by their paths in the job.
    - ``nested_mounts``: the mounts within its output folder, if the folder is to be cleaned.
    """

    job: Job
    volcano_job: VolcanoJob
    companions: tuple[Companion, ...]
    shared: tuple[SharedObject, ...] = ()
    waiting: tuple[str, ...] = ()
    places: Mapping[str, HeldPlace] = field(default_factory=dict)
    nested_mounts: NestedMounts | None = None


class Pipeline:
    """The plugins, in order.

    The capabilities of the cluster's Volcano are not checked until they are known.

    Args:
        plugins: The plugins, in the order in which their hooks run.
        instance: The label of everything that is created.
        namespace: The namespace of jobs that no plugin places elsewhere.
    """

    def __init__(
        self,
        plugins: Sequence[JobPlugin],
        *,
        instance: str,
        namespace: str,
        border: PluginBorder | None = None,
    ) -> None:
        self._plugins = tuple(plugins)
        self.border = border or PluginBorder()
        self._instance = instance
        self._namespace = namespace
        self.capabilities = Capabilities()
        self._turn = LoopTurn()
        self._with: Mapping[Hook, frozenset[str]] = {
            hook: frozenset(plugin.name for plugin in plugins if _has(plugin, name))
            for hook, name in _HOOK_NAMES.items()
        }
        self._creating = tuple(
            plugin
            for plugin in plugins
            if _has(plugin, "on_create") or plugin.job_fields_model is not None
        )

    def learn(self, capabilities: Capabilities) -> None:
        """Reject jobs from now on that the cluster's Volcano does not support."""
        self.capabilities = capabilities

    async def learn_from(self, transaction: Transaction) -> None:
        """Read the capabilities from the store, so that all replicas reject the same jobs."""
        other = await find_capabilities(transaction, unless=self.capabilities.digest)
        if other is not None:
            self.capabilities = other

    @property
    def offered_fields(self) -> frozenset[str]:
        """The supported parts of a job: fields, ``parameters.<type>`` and ``plugins.<name>``.

        ``Job.asks_for`` uses the same words.
        """
        own = (f"plugins.{name}" for name in self.job_fields)
        return BASE_FIELDS.union(own, *(plugin.fields for plugin in self._plugins))

    @property
    def companion_kinds(self) -> dict[CompanionKind, str]:
        """The declared kinds of companions, with the name of a plugin that declares each."""
        return {kind: one.name for one in self._plugins for kind in one.companion_kinds}

    @property
    def job_fields(self) -> dict[str, type[JobFields]]:
        """The models of job fields under ``plugins``, by plugin name."""
        return {
            plugin.name: plugin.job_fields_model
            for plugin in self._plugins
            if plugin.job_fields_model is not None
        }

    def refuse_unclaimed(self, job: Job) -> None:
        """Check that a plugin carries out every field that the job sets.

        Raises:
            JobRejected: If a field has no plugin.
        """
        offered = self.offered_fields
        unclaimed = [path for what, path in job.asks_for().items() if what not in offered]
        if unclaimed:
            raise JobRejected(Problem(path, "unknown field") for path in unclaimed)

    async def plan(
        self,
        job: Job,
        *,
        attempt: int = 1,
        created_at: float = 0.0,
        accepted_in: str | None = None,
        submitted: bool = False,
        sids: Mapping[str, str] | None = None,
    ) -> Plan:
        """Return the plan of the objects for *job*; nothing is created yet.

        Args:
            job: The job.
            attempt: The number of the attempt.
            created_at: When it was accepted.
            accepted_in: The namespace in which it was accepted; it stays there, whatever the
                settings say.
            submitted: Whether its VolcanoJob exists.
            sids: The sessions that were created with it, by endpoint.

        Raises:
            JobRejected: With the problems that all plugins and the preflight checks found. No
                plugin sees a job that is too large to be stored.
            PluginFailed: If a plugin failed otherwise.
        """
        empty = self._empty(job, attempt, created_at)
        # Checked before the plugins, which might process a hundred thousand files in vain.
        if too_large := list(annotation_findings("metadata.annotations", empty.annotations)):
            raise JobRejected(problems_with(job, too_large))
        builder = JobBuilder(job, empty, accepted_in=accepted_in, submitted=submitted, sids=sids)
        empty.namespace = accepted_in or self._namespace
        labels, annotations = dict(empty.labels), dict(empty.annotations)
        problems: list[Problem] = []
        completed: dict[int, Companion] = {}
        secrets = job.secrets().values()
        for plugin in self._creating:
            problems += await self._create(plugin, job, builder, completed, secrets)
        await self._turn.rest()  # built-in hooks may not have yielded
        problems += checked_problems(builder.problems)
        if not problems:
            made = builder.volcano_job
            _restore_labels(made, labels, annotations)
            fit_init_containers(made)
            if found := findings(made) or self.capabilities.lacks(made.manifest()):
                problems += problems_with(job, found)
        if problems:
            raise JobRejected(problems)
        return Plan(
            job=job,
            volcano_job=builder.volcano_job,
            companions=tuple(completed.get(id(one), one) for one in builder.companions),
            shared=tuple(builder.shared),
            waiting=tuple(builder.waiting),
            places=builder.places,
            nested_mounts=builder.nested_mounts,
        )

    def _empty(self, job: Job, attempt: int, created_at: float) -> VolcanoJob:
        return VolcanoJob(
            name=volcano_job_name(job.id),
            namespace=self._namespace,
            labels=labels_of(self._instance, job.id),
            # The job can be adopted from these if the store is lost.
            annotations={
                SPEC_ANNOTATION: json.dumps(public_spec(job), separators=(",", ":")),
                ATTEMPT_ANNOTATION: str(attempt),
                CREATED_ANNOTATION: repr(created_at),
            },
        )

    def done_hooks(self, hooks: Mapping[str, HookState]) -> frozenset[Hook]:
        """Return the hooks that every plugin that has them has completed, or given up."""
        return frozenset(
            hook
            for hook, plugins in self._with.items()
            if not plugins or (hook in hooks and plugins <= hooks[hook].settled)
        )

    def next_calls(self, hooks: Mapping[str, HookState]) -> dict[Hook, float]:
        """Return when each failed hook is to be called next, in unix seconds."""
        return {
            hook: at
            for hook, plugins in self._with.items()
            if hook in hooks
            and hooks[hook].failed
            and (at := hooks[hook].next_at(plugins)) is not None
        }

    async def run(
        self,
        hook: Hook,
        seen: JobFromServer,
        *,
        done: Collection[str],
        recorder: HookRecorder,
        failed: Mapping[str, HookFailure] = _NONE_FAILED,
    ) -> None:
        """Run the hook of every plugin that is not in *done*, and record the results.

        Plugins without that hook are not recorded. Plugins after a failing plugin run all the same.
        A plugin in *failed* is tried again once its pause is over, and never after it was given up.
        Hooks that run within a moment are recorded together; if the record is lost, they run again.

        Raises:
            LeadershipLost, StoreUnavailable: If it cannot be recorded.
        """
        ran, since, secrets = list[RanHook](), time.monotonic(), seen.job.secrets().values()

        async def record() -> None:
            nonlocal since
            if ran:
                await recorder.record(seen.job.id, seen.attempt, hook=hook, ran=tuple(ran))
                ran.clear()
                since = time.monotonic()

        for plugin in self._plugins:
            before = failed.get(plugin.name)
            if plugin.name in done or plugin.name not in self._with[hook]:
                continue
            if before is not None and not recorder.is_due(before):
                continue
            try:
                due = await self._run(plugin, hook, seen, secrets)
            except PluginFailed as failure:
                await record()
                if _is_ours(plugin) and isinstance(failure.__cause__, StoreUnavailable):
                    # Its ledger entries must not be given up: the hook waits for the store, as the
                    # leader does.
                    raise failure.__cause__ from None
                await recorder.fail(seen.job.id, seen.attempt, failure, hook=hook, before=before)
            else:
                ran.append(RanHook(plugin.name, due, before))
                if time.monotonic() - since >= RECORD_SECONDS:
                    await record()
        await record()

    async def monitor(self, name: str, batch: Sequence[JobFromServer]) -> dict[str, float | None]:
        """Call the monitoring hook of the plugin *name*; return when each job is due again.

        Raises:
            PluginFailed: If it fails.
            LookupError: If there is no such plugin any more.
        """
        plugin = next((one for one in self._plugins if one.name == name), None)
        if plugin is None:
            raise LookupError(name)
        job_id = batch[0].job.id if len(batch) == 1 else ""
        call = Call(name, "on_job_monitoring", job_id)
        secrets = [value for one in batch for value in one.job.secrets().values()]
        read = due_times([one.job.id for one in batch])
        given = [_view_for(plugin, one) for one in batch]
        return await self.border.call(
            call,
            lambda: plugin.on_job_monitoring(given),
            read,
            secrets=secrets,
            in_place=_is_ours(plugin),
        )

    async def _create(
        self,
        plugin: JobPlugin,
        job: Job,
        builder: JobBuilder,
        completed: dict[int, Companion],
        secrets: Collection[str],
    ) -> list[Problem]:
        # Tests of the built-in plugins replace the checks of third-party plugins.
        checked = not _is_ours(plugin)
        before = {id(one) for one in builder.companions}
        tasks = tasks_of_job(builder) if checked else set()
        given = _copied(job) if checked else job

        async def create() -> Sequence[Problem]:
            builder.job = given
            try:
                if builder.accepted_in is None and plugin.job_fields_model is not None:
                    # An accepted job stays accepted, even if the plugin would reject it now.
                    plugin.own_fields(given, plugin.job_fields_model)
                await plugin.on_create(given, builder)
            except JobRejected as rejected:
                return rejected.problems or (Problem("", "refused without a reason"),)
            finally:
                builder.job = job
            return ()

        def read(result: object) -> list[Problem]:
            check_builder(builder)
            if lost := tasks - tasks_of_job(builder):
                raise BadResult(f"removed the program of the task {min(lost)}")
            made = [one for one in builder.companions if id(one) not in before]
            completed.update(complete_companions(made, plugin.companion_kinds))
            return checked_problems(result) if result else []

        call = Call(plugin.name, "on_create", job.id)
        if checked:
            return await self.border.call(call, create, read, secrets=secrets)
        as_it_is = cast("Callable[[object], list[Problem]]", list)
        found = await self.border.call(call, create, as_it_is, secrets=secrets, in_place=True)
        return checked_problems(found) if found else []

    async def _run(
        self, plugin: JobPlugin, hook: Hook, seen: JobFromServer, secrets: Collection[str]
    ) -> float | None:
        job, given = seen.job, _view_for(plugin, seen)
        work: Mapping[Hook, Callable[[], Awaitable[object]]] = {
            "start": lambda: plugin.on_job_start(job.id, given),
            "complete": lambda: plugin.on_job_complete(job.id, given),
            "cleanup": lambda: plugin.on_cleanup(job.id),
        }
        read = due_time if hook == "start" else nothing
        call = Call(plugin.name, _HOOK_NAMES[hook], job.id)
        return await self.border.call(
            call,
            work[hook],
            read,
            secrets=secrets,
            in_place=_is_ours(plugin),
        )


def _restore_labels(
    made: VolcanoJob, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    """Restore the labels and annotations by which VolcanoJob and pods are found."""
    made.labels = {**made.labels, **labels}
    made.annotations = {**made.annotations, **annotations}
    for task in made.tasks:
        task.template.labels = {**task.template.labels, **labels}


def _is_ours(plugin: JobPlugin) -> bool:
    return type(plugin).__module__.startswith(_OURS)


def _view_for(plugin: JobPlugin, seen: JobFromServer) -> JobFromServer:
    """Return what *plugin* may see: a copy, so that nobody else sees its changes."""
    return seen if _is_ours(plugin) else replace(seen, job=_copied(seen.job))


def _copied(job: Job) -> Job:
    # The model is frozen, but its lists and mappings are not.
    return job.model_copy(deep=True)


def _has(plugin: JobPlugin, name: HookName) -> bool:
    """Return whether *plugin* overrides that hook."""
    return getattr(getattr(plugin, name), "__func__", None) is not getattr(JobPlugin, name)
