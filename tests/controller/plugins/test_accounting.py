from __future__ import annotations

from typing import ClassVar

from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.usage import Ledger
from controller.plugins.accounting import AccountingPlugin
from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.progress import record_attempt, upsert_pod_records
from controller.store.outbox.usage_entries import usage_after
from tests.clock import Clock
from tests.controller.jobs.usage.test_periods import run
from tests.controller.samples import NoLedger, make_context, make_defaults, make_job, make_record

SEEN = JobFromServer(
    job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1000.0,
    pods=(),
)  # fmt: skip


async def test_accounting_is_due_at_start_each_period_and_end() -> None:
    class RecordingLedger(NoLedger):
        asked: ClassVar[list[str]] = []

        async def write_up(self, job_id: str) -> float | None:
            self.asked.append(job_id)
            return 900.0

    plugin = AccountingPlugin(make_context(ledger=RecordingLedger()))
    assert await plugin.on_job_start("j1", SEEN) == 900.0
    assert await plugin.on_job_monitoring([SEEN]) == {"j1": 900.0}
    # Also if the job was deleted for lack of funds: an earlier defect skipped its last charge.
    await plugin.on_cleanup("j1")
    assert RecordingLedger.asked == ["j1"] * 3


async def test_a_repeated_start_resets_no_charge(store: Store, clock: Clock) -> None:
    # In UCloud/Compute each new master set the last charge to now, so earlier time was free.
    clock.now = 1000.0
    defaults = make_defaults(FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="100")
    plugin = AccountingPlugin(make_context(ledger=Ledger(store, defaults=defaults, clock=clock)))
    record = make_record(uid="u", state="RUNNING", started_at=1000.0)
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        await record_attempt(transaction, "j1", 1, uid="u", now=1000.0)
        await upsert_pod_records(transaction, [run(1000.0)])
    assert await plugin.on_job_start("j1", SEEN) == 1100.0
    for now, due in ((1090.0, 1100.0), (1250.0, 1300.0), (1299.0, 1300.0)):
        clock.now = now
        assert await plugin.on_job_start("j1", SEEN) == due
    assert await plugin.on_job_monitoring([SEEN]) == {"j1": 1300.0}
    async with store.read() as transaction:
        entries = await usage_after(transaction, 0, limit=9)
    charged = [(one.period, one.seconds, one.until) for one in entries]
    assert charged == [(0, 100.0, 1100.0), (1, 200.0, 1200.0)]
