"""The objects that the API's resources call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from pydantic import BaseModel

from controller.api.server_sent_events import EventStreams
from controller.explain.explainer import Explainer
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.commands import JobCommands
from controller.jobs.tools.attachments import Tools
from controller.kube.capacity import Counts, NodeCapacity
from controller.kube.client import Kube
from controller.logs.live import PodLogs
from controller.logs.reading import LogReader
from controller.logs.storage import LogStorage
from controller.resource_metrics.sampler import MetricSampler
from controller.sessions.service import SessionService
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store
from controller.store.notifications import UpdateNotifications

CapacityOf: TypeAlias = Callable[[Counts], Awaitable[NodeCapacity | None]]
"""Returns the nodes' capacity, or None while the API server is unavailable."""


@dataclass(frozen=True, kw_only=True)
class ApiParts:
    """The objects that the API's resources call.

    ``offered_fields`` are the job fields that the enabled plugins implement. ``job_fields`` holds
    the models of the plugins' own fields, by the plugins' names.
    """

    store: Store
    submissions: Submissions
    commands: JobCommands
    tools: Tools
    sessions: SessionService
    kube: Kube
    capacity: CapacityOf
    explainer: Explainer
    notifications: UpdateNotifications
    metrics: MetricSampler
    defaults: JobDefaults
    offered_fields: Collection[str]
    job_fields: Mapping[str, type[BaseModel]]
    clock: Callable[[], float]
    log_storage: LogStorage | None = None
    streams: EventStreams = field(default_factory=EventStreams)

    @cached_property
    def logs(self) -> LogReader:
        """Return the reader of live and stored logs."""
        return LogReader(self.store, PodLogs(self.kube), self.log_storage)
