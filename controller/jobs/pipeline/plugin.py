"""The plugin interface: five hooks, each of which does nothing by default.

A third-party plugin subclasses :class:`JobPlugin` and registers in the entry-point group
``fumarole.plugins``; it imports everything from :mod:`controller.plugin_api`. Hooks run in the
order of the pipeline, also at clean-up. A hook may run more than once for the same job and attempt:
completed hooks are recorded, but the process can stop in between. So hooks must be idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.plugin_metrics import PluginMetrics
from controller.jobs.pipeline.plugin_models import (
    CompanionKind,
    F,
    JobFields,
    PluginSettings,
    S,
    read_job_fields,
)
from controller.jobs.spec.model import Job
from controller.site.job_defaults import JobDefaults
from controller.store.jobs.relations import Caller, Peer
from controller.volcano.observed import ObservedPod

if TYPE_CHECKING:
    from controller.jobs.pipeline.builder import JobBuilder


class SessionControl(Protocol):
    """The operations of plugins on a job's sessions."""

    async def routes_may_have_changed(self, job_id: str) -> None:
        """Compare the routes of the job's sessions with the published ones, soon."""

    async def end_sessions(self, job_id: str, *, reason: str) -> None:
        """End all sessions of the job, for good."""


class JobControl(Protocol):
    """The operations of plugins on a job itself."""

    async def end_if_over(self, job_ids: Collection[str]) -> Mapping[str, float | None]:
        """End the jobs whose time is over; return when each will be over, None for never."""


class UsageLedger(Protocol):
    """The usage ledger."""

    async def write_up(self, job_id: str) -> float | None:
        """Enter the due usage of the job; return when more will be due, None for never."""


class LinkControl(Protocol):
    """The operations of plugins on a job's public links."""

    async def expose(self, job: Job) -> None:
        """Make the job's public links lead to it; idempotent."""

    async def release(self, job_id: str) -> None:
        """Detach the job's links from it; their owners keep them."""


class PeerBook(Protocol):
    """The queries of plugins about jobs that name each other."""

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return those of the jobs that exist, by id."""

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return the jobs that name this one and have not ended, in order."""

    async def has_ended(self, job_id: str) -> None:
        """Enqueue the jobs that this one names: they must revoke its access."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """The argument of a plugin's constructor: the services that the plugin may use."""

    instance: str
    jobs: JobDefaults
    sessions: SessionControl
    control: JobControl
    ledger: UsageLedger
    links: LinkControl
    peers: PeerBook
    settings: PluginSettings | None = None
    """The plugin's own settings; see :meth:`JobPlugin.own_settings`."""
    metrics: PluginMetrics = field(
        default_factory=lambda: PluginMetrics("unknown", CollectorRegistry())
    )
    """Creates the plugin's own metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFromServer:
    """A job as the cluster runs it: an immutable snapshot."""

    job: Job
    namespace: str
    uid: str
    attempt: int
    phase: str
    started_at: float | None
    pods: tuple[ObservedPod, ...]
    expires_at: float | None = None


class JobPlugin:
    """The base class of plugins: every hook does nothing.

    - ``name``: the plugin's name everywhere: module, setting, metric label, log field.
    - ``fields``: the fields of a job that the plugin implements. A field that no plugin implements
      is refused.
    - ``api_version``: the version of ``controller.plugin_api`` that a third-party plugin is for.
    - ``after``, ``before``: the plugins that it runs after and before; ``"*"`` stands for all
      others without a constraint against it.
    - ``settings_model``, ``job_fields_model``: its own settings, and its own fields of a job.
    - ``companion_kinds``: further kinds of companions that it creates.
    """

    name: ClassVar[str]
    api_version: ClassVar[str | None] = None
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[frozenset[str]] = frozenset()
    settings_model: ClassVar[type[PluginSettings] | None] = None
    job_fields_model: ClassVar[type[JobFields] | None] = None
    companion_kinds: ClassVar[tuple[CompanionKind, ...]] = ()

    def __init__(self, context: PluginContext) -> None:
        self.context = context

    def own_settings(self, model: type[S]) -> S:
        """Return the plugin's own settings.

        Raises:
            TypeError: If *model* is not its ``settings_model``.
        """
        if not isinstance(self.context.settings, model):
            raise TypeError(f"{model.__name__} is not the settings_model of the plugin {self.name}")
        return self.context.settings

    def own_fields(self, job: Job, model: type[F]) -> F:
        """Return the job's fields for this plugin, with defaults for those not set.

        Raises:
            JobRejected: If they are invalid. Only a job that was accepted with another model of the
                plugin, or without the plugin, can have invalid fields.
            TypeError: If *model* is not its ``job_fields_model``.
        """
        if model is not self.job_fields_model:
            raise TypeError(
                f"{model.__name__} is not the job_fields_model of the plugin {self.name}"
            )
        return read_job_fields(model, self.name, job.plugins.get(self.name, {}))

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Change what *builder* plans for *job*.

        The hook is called to check whether the job can be accepted, and again when the job is
        submitted. It must change only the builder. It reports problems of the job by
        :meth:`JobBuilder.refuse`, or raises ``JobRejected``. The problems of all plugins are
        returned together.
        """

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Act once the job runs; return when :meth:`on_job_monitoring` is due, if ever."""
        return None

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        """Act once the job has ended, with any outcome; the job may never have run."""

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """Act on jobs that are due; return when each is due next (unix seconds), by id.

        A job that is missing in the result is due again after a minute, so that a plugin that
        forgets a job does not lose it.
        """
        return {one.job.id: None for one in job_batch}

    async def on_cleanup(self, job_id: str) -> None:
        """Undo the plugin's effects for the job, except objects that its VolcanoJob owns."""
