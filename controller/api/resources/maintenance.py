"""``/v1/maintenance``: pause, resume and drain submission."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.operations import offered
from controller.api.parts import ApiParts
from controller.api.response_models import MaintenanceView
from controller.jobs.spec.parameters import Strict
from controller.store.instance import Mode, read_maintenance, set_maintenance
from controller.store.jobs.job_rows import touch_unsubmitted
from controller.store.jobs.totals import demand_by_state

_MODES: Final[dict[str, Mode]] = {"pause": "paused", "resume": "running", "drain": "draining"}


class MaintenanceRequest(Strict):
    """What is to be done.

    ``pause`` keeps accepted jobs in the queue; ``drain`` takes none either, and lets what runs end
    by itself; ``resume`` ends both. ``message`` is told to whoever waits.
    """

    action: Literal["pause", "resume", "drain"]
    # PostgreSQL takes NUL in no text.
    message: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = None


@offered("GET", "/v1/maintenance", "getMaintenance", "See whether jobs are taken and submitted")
async def show(api: ApiParts, _request: web.Request) -> MaintenanceView:
    """Show how it stands, and how many jobs there still are."""
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


@offered("POST", "/v1/maintenance", "setMaintenance", "Pause, drain or resume submission")
async def change(api: ApiParts, request: web.Request, asked: MaintenanceRequest) -> MaintenanceView:
    """Change it; the same again changes nothing."""
    mode = _MODES[asked.action]
    async with api.store.write() as transaction:
        # The leader, wherever it is, looks at those that wait once more.
        await touch_unsubmitted(transaction)
        await set_maintenance(transaction, mode, asked.message, now=api.clock())
    audit(request, "changed", reason=mode)
    return await show(api, request)
