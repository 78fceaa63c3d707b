"""What a plugin is: five hooks, each of which may stay as it is.

A plugin of another package subclasses :class:`JobPlugin` and names itself in the entry-point group
``fumarole.plugins``; it imports all of this from :mod:`controller.plugin_api`. Hooks run in the
order of the pipeline, clean-up included. They may run more than once for the same job and attempt
(what ran is recorded, but a process can die in between), so doing the same again must change
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.builder import CompanionKind
from controller.jobs.pipeline.plugin_metrics import PluginMetrics
from controller.jobs.pipeline.plugin_models import F, JobFields, PluginSettings, S, read_job_fields
from controller.jobs.spec.model import Job
from controller.settings import JobDefaults
from controller.store.jobs.between_jobs import Caller, Peer
from controller.volcano.observed import ObservedPod

if TYPE_CHECKING:
    from controller.jobs.pipeline.builder import JobBuilder


class SessionControl(Protocol):
    """What plugins may do with a job's sessions."""

    async def routes_may_have_changed(self, job_id: str) -> None:
        """Have the routes of the job's sessions compared with what is published, soon."""

    async def end_sessions(self, job_id: str, *, reason: str) -> None:
        """End all sessions of the job, for good."""


class JobControl(Protocol):
    """What plugins may do with a job itself."""

    async def end_if_over(self, job_ids: Collection[str]) -> Mapping[str, float | None]:
        """End the jobs whose time is over; return of each when it will be, None where never."""


class UsageLedger(Protocol):
    """Where what jobs use is entered."""

    async def write_up(self, job_id: str) -> float | None:
        """Enter what is due for the job; return when there will be more, None where never."""


class LinkControl(Protocol):
    """What plugins may do with a job's public links."""

    async def expose(self, job: Job) -> None:
        """See to it that the job's links lead to it, where it has them; again changes nothing."""

    async def release(self, job_id: str) -> None:
        """Take the job's links from it; whose they are is remembered."""


class PeerBook(Protocol):
    """What plugins may know of jobs that name each other."""

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return those of the jobs that there are, by id."""

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return the jobs that name this one and have not ended, in order."""

    async def has_ended(self, job_id: str) -> None:
        """Have the jobs that this one names looked at: what they admit of it is to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """What a plugin is made with."""

    instance: str
    jobs: JobDefaults
    sessions: SessionControl
    control: JobControl
    ledger: UsageLedger
    links: LinkControl
    peers: PeerBook
    settings: PluginSettings | None = None
    """The plugin's own; see :meth:`JobPlugin.own_settings`."""
    metrics: PluginMetrics = field(
        default_factory=lambda: PluginMetrics("unknown", CollectorRegistry())
    )
    """Makes the plugin's own metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFromServer:
    """A job as the cluster runs it: a snapshot that does not change."""

    job: Job
    namespace: str
    uid: str
    attempt: int
    phase: str
    started_at: float | None
    pods: tuple[ObservedPod, ...]
    expires_at: float | None = None


class JobPlugin:
    """Does nothing at any point of a job's life; subclasses override what they need.

    ``name`` is the plugin's word everywhere: module, setting, metric label, log field. ``fields``
    are the fields of a job that this plugin carries out; a field that no plugin of the pipeline
    claims is refused. ``api_version`` is the version of ``controller.plugin_api`` that a plugin of
    another package was made for. It runs ``after`` and ``before`` the plugins that it names;
    ``"*"`` stands for all others that do not say otherwise. ``settings_model`` and
    ``job_fields_model`` declare what a plugin of another package is configured with, and what jobs
    may say for it; ``companion_kinds``, of which kinds its companions are, beside those that every
    plugin may make.
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
        """Return the plugin's own settings, which are those that it declares.

        Raises:
            TypeError: If *model* is not its ``settings_model``.
        """
        if not isinstance(self.context.settings, model):
            raise TypeError(f"{model.__name__} is not the settings_model of the plugin {self.name}")
        return self.context.settings

    def own_fields(self, job: Job, model: type[F]) -> F:
        """Return what *job* says for this plugin, or what it would say by saying nothing.

        Raises:
            JobRejected: If it says what the plugin does not take: only a job that was accepted
                when the plugin took something else, or was not there.
            TypeError: If *model* is not its ``job_fields_model``.
        """
        if model is not self.job_fields_model:
            raise TypeError(
                f"{model.__name__} is not the job_fields_model of the plugin {self.name}"
            )
        return read_job_fields(model, self.name, job.plugins.get(self.name, {}))

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Change what *builder* makes of *job*.

        Called once to find out whether the job can be accepted, and again when it is submitted:
        it must not change anything but the builder. What is wrong with the job is told by
        :meth:`JobBuilder.refuse` or by raising ``JobRejected``; problems of all plugins are
        answered together.
        """

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Act once the job runs; return when :meth:`on_job_monitoring` should see it, if ever."""
        return None

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        """Act once the job has ended, in whichever way; it may never have run."""

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        """Act on jobs whose time has come; return each one's next time (unix seconds) by id.

        A job that is not in what is returned is seen again after a minute: forgetting one
        must not be how it is lost.
        """
        return {one.job.id: None for one in job_batch}

    async def on_cleanup(self, job_id: str) -> None:
        """Take back what was done for the job outside of what its VolcanoJob owns."""
