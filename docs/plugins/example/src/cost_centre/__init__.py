"""Books each job on the cost centre that it names.

The booking is an object in the cluster (``Booking``, see ``kubernetes.yaml``). Another program of
the site follows these objects and writes the bills.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from controller.plugin_api import (
    Companion,
    CompanionKind,
    Job,
    JobBuilder,
    JobFields,
    JobFromServer,
    JobPlugin,
    PluginContext,
    PluginSettings,
    Variable,
    companion_name,
)

BOOKING = CompanionKind(api_version="billing.example.com/v1", kind="Booking", plural="bookings")
LABEL = "billing.example.com/centre"


class CostCentreSettings(PluginSettings):
    """Settings of the deployment, such as FUMAROLE_PLUGIN_COST_CENTRE_OPEN=physics,maths."""

    open: tuple[str, ...] = Field(min_length=1)
    currency: str = Field(default="EUR", pattern="^[A-Z]{3}$")


class CostCentreFields(JobFields):
    """Fields of a job: ``"plugins": {"cost_centre": {"centre": "physics"}}``."""

    centre: str = Field(pattern="^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$")
    remark: str | None = Field(default=None, max_length=200)


class CostCentrePlugin(JobPlugin):
    """Labels pods with the cost centre of their job, and books the job on it."""

    name: ClassVar[str] = "cost_centre"
    api_version: ClassVar[str] = "1.0"
    # The pods that it labels are made by task.
    after: ClassVar[tuple[str, ...]] = ("task",)
    settings_model: ClassVar[type[PluginSettings]] = CostCentreSettings
    job_fields_model: ClassVar[type[JobFields]] = CostCentreFields
    companion_kinds: ClassVar[tuple[CompanionKind, ...]] = (BOOKING,)

    def __init__(self, context: PluginContext) -> None:
        """Make the metric. A plugin is made once for each process."""
        super().__init__(context)
        centres = {"centre": self.own_settings(CostCentreSettings).open}
        self._started = context.metrics.counter("started", "Jobs that have started", centres)

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Label the pods, tell the program, and add the booking."""
        settings = self.own_settings(CostCentreSettings)
        fields = self.own_fields(job, CostCentreFields)
        # An accepted job stays accepted, even if its centre has been closed since.
        if builder.accepted_in is None and fields.centre not in settings.open:
            builder.refuse("plugins.cost_centre.centre", "is not open")
            return
        for task in builder.volcano_job.tasks:
            task.template.labels[LABEL] = fields.centre
        for container in builder.containers():
            container.environment.append(Variable(name="COST_CENTRE", value=fields.centre))
        spec = {"centre": fields.centre, "currency": settings.currency, "user": job.owner.user}
        if fields.remark is not None:
            spec["remark"] = fields.remark
        builder.add_companion(
            Companion(
                kind=BOOKING.kind,
                name=companion_name(job.id, "booking"),
                manifest={"spec": spec},
                # No pod may run before its booking exists.
                when="before",
            )
        )

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        """Count the start. None: this job needs no monitoring."""
        centre = self.own_fields(job_from_server.job, CostCentreFields).centre
        self._started.inc(centre=centre)
        return None
