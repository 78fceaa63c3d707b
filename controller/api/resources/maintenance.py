"""``/v1/maintenance``: pause, resume and drain submission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.operations import Operation
from controller.api.requests import read_model
from controller.api.response_models import MaintenanceView
from controller.jobs.spec.parameters import Strict
from controller.store.database import Store
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


class MaintenanceResource:
    """The handlers of the resource."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    @Operation(
        "GET",
        "/v1/maintenance",
        "getMaintenance",
        "See whether jobs are taken and submitted",
        answer=MaintenanceView,
    )
    async def show(self, _request: web.Request) -> web.Response:
        """Show how it stands, and how many jobs there still are."""
        async with self._store.read() as transaction:
            now = await read_maintenance(transaction)
            demand = await demand_by_state(transaction)
        counts = {state: one.jobs for state, one in demand.items()}
        shown = MaintenanceView(
            mode=now.mode,
            message=now.message,
            since=now.since,
            waiting=counts.get("IN_QUEUE", 0) + counts.get("SUSPENDED", 0),
            running=counts.get("RUNNING", 0) + counts.get("CANCELING", 0),
        )
        return web.json_response(shown.model_dump(mode="json"))

    @Operation(
        "POST",
        "/v1/maintenance",
        "setMaintenance",
        "Pause, drain or resume submission",
        body=MaintenanceRequest,
        answer=MaintenanceView,
    )
    async def change(self, request: web.Request) -> web.Response:
        """Change it; the same again changes nothing."""
        asked = await read_model(request, MaintenanceRequest)
        mode = _MODES[asked.action]
        async with self._store.write() as transaction:
            # The leader, wherever it is, looks at those that wait once more.
            await touch_unsubmitted(transaction)
            await set_maintenance(transaction, mode, asked.message, now=self._clock())
        audit(request, "changed", reason=mode)
        return await self.show(request)
