"""``/v1/maintenance``: pause, resume and drain the submission of jobs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.response_models import MaintenanceView
from controller.jobs.spec.parameters import Strict
from controller.store.instance import Mode, read_maintenance, set_maintenance
from controller.store.jobs.job_rows import touch_unsubmitted
from controller.store.jobs.totals import demand_by_state

_MODES: Final[dict[str, Mode]] = {"pause": "paused", "resume": "running", "drain": "draining"}


class MaintenanceRequest(Strict):
    """A change of the maintenance mode.

    - ``pause`` keeps accepted jobs in the queue.
    - ``drain`` also refuses new jobs. Running jobs end by themselves.
    - ``resume`` ends both.

    ``message`` is shown to the owners of waiting jobs.
    """

    action: Literal["pause", "resume", "drain"]
    # PostgreSQL stores NUL in no text.
    message: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = None


@operation("GET", "/v1/maintenance", "getMaintenance", "Get the maintenance mode")
async def show(api: ApiParts, _request: web.Request) -> MaintenanceView:
    """Return the maintenance mode and the number of jobs."""
    async with api.store.read() as transaction:
        now = await read_maintenance(transaction)
        demand = await demand_by_state(transaction)
    counts = {state: one.jobs for state, one in demand.items()}
    return MaintenanceView(
        mode=now.mode,
        message=now.message,
        since=now.since,
        waiting=counts.get("IN_QUEUE", 0) + counts.get("SUSPENDED", 0),
        running=counts.get("RUNNING", 0) + counts.get("CANCELING", 0),
    )


@operation("POST", "/v1/maintenance", "setMaintenance", "Pause, drain or resume submission")
async def change(api: ApiParts, request: web.Request, body: MaintenanceRequest) -> MaintenanceView:
    """Set the maintenance mode. A repeated request changes nothing."""
    mode = _MODES[body.action]
    async with api.store.write() as transaction:
        # Makes the leader, in whichever process, check the waiting jobs again.
        await touch_unsubmitted(transaction)
        await set_maintenance(transaction, mode, body.message, now=api.clock())
    audit(request, "changed", reason=mode)
    return await show(api, request)
