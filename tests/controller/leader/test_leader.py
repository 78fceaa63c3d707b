"""Tests a leader with scripted turns, and a job from its acceptance to its end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.jobs.submission.accept import Submissions
from controller.leader import leader as module
from controller.leader.election import ByLease, NoElection
from controller.leader.leader import make_election
from controller.process import first_error
from controller.sessions.queue_positions import QueuePositions
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import find_capabilities, read_leadership
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.sessions.revocations import active_revocations
from controller.store.sessions.session_rows import Session, insert_session
from shared.bus import BusReader, Keys, SignOutWriter
from shared.routes.route import Route
from tests.controller.leader.leading import Lead, Sender, World
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_observed, make_record
from tests.shared.samples import make_sid
from tests.waiting import until

NOT_READ = "the cluster has not been read yet"

# Turns


@pytest.mark.parametrize(("again", "why"), [(True, NOT_READ), (False, "not the leader yet")])
async def test_a_standby_states_why_it_is_not_ready(leading: Lead, again: bool, why: str) -> None:
    async with leading(again=again) as w:
        assert tuple(w.leader.problems()) == (why,)
        assert (w.leader.publisher, w.leader.degraded(), w.leader.faults()) == (None, (), ())
        assert [w.metric(name) for name in ("leads", "queue", "routes", "parked_jobs")] == [0] * 4
        # Without a leader, no key is reconciled.
        w.core.jobs.enqueue("j1")
        w.core.routes.enqueue("j1")
        assert w.metric("enqueued_total", reason="asked") is None


@pytest.mark.parametrize(
    ("offset", "how"), [(700.2, "700 s behind"), (-6.0, "6 s ahead of"), (0.0, None)]
)
async def test_a_clock_that_differs_from_the_api_servers_is_reported(
    leading: Lead, offset: float, how: str | None
) -> None:
    async with leading() as w:
        w.leader.kube._transport.clock_offset = offset
        said = () if how is None else (f"this process' clock is {how} the API server's",)
        assert w.leader.degraded() == said
        await w.lead()
        assert set(said) <= set(w.leader.degraded())


@pytest.mark.parametrize(("offset", "ends"), [(0.0, True), (-600.0, False), (600.0, True)])
async def test_a_job_ends_early_by_no_clock_that_is_ahead_of_the_api_servers(
    leading: Lead, store: Store, offset: float, ends: bool
) -> None:
    record = make_record(started_at=time.time() - 100.0, allocated_seconds=90.0, state="RUNNING")
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
    async with leading() as w:
        w.leader.kube._transport.clock_offset = offset
        due = None if ends else record.expires_at
        assert await w.core.commands.end_if_over(["j1"]) == {"j1": due}
        # A pod that no leader saw to its end is charged until then.
        seen = w.leader._standby.informer.looked_until
        assert seen == pytest.approx(time.time() + min(0.0, offset), abs=5.0)


async def test_a_leader_reports_what_does_not_work_yet(leading: Lead, store: Store) -> None:
    async with leading() as w:
        assert w.leader._standby.informer.problems() == ()
        await w.lead()
        async with store.read() as transaction:
            led = await read_leadership(transaction)
        assert (led.term, led.holder) == (1, f"{socket.gethostname()}:{os.getpid()}")
        assert "store and cluster have not been compared yet" in w.leader.problems()

        await until(lambda: any("cannot be followed" in why for why in w.leader.problems()))
        assert w.leader.degraded() == ("routes are not published to Redis",)
        assert w.leader.faults() == ()
        assert w.metric("leads") == 1
        assert w.metric("unfollowed_kinds") == len(w.leader._standby.informer.problems()) > 0


async def test_requests_and_cluster_events_are_reconciled_by_the_leader(
    leading: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading() as w:
        await w.lead()
        queue, publisher = w.leader._term.queue, w.leader.publisher
        w.core.jobs.enqueue("j1")
        assert (w.metric("queue"), w.metric("enqueued_total", reason="asked")) == (1, 1)
        w.core.routes.enqueue("j2")
        assert publisher.describe()["changed_jobs"] == 1
        # A change in the cluster enqueues routes too, if the job has any.
        monkeypatch.setattr(publisher._snapshots, "concerns", lambda job: job == "j3")
        w.leader._standby._leader("j3")
        w.leader._standby._leader("j4")
        assert w.metric("enqueued_total", reason="cluster") == 2
        assert list(queue._ready) == ["j1", "j3", "j4"]
        assert publisher.describe()["changed_jobs"] == 2
        assert (w.metric("routes"), w.metric("parked_jobs")) == (0, 0)


async def test_a_leader_that_loses_the_lease_can_lead_again_with_a_later_term(
    leading: Lead, store: Store
) -> None:
    async with leading() as w:
        await w.lead()
        assert w.leader._standby._leader is not None
        w.turns.lose()
        await w.until_leads(False)
        await until(lambda: w.turns.acquired == 2)
        assert (w.turns.released, w.leader._standby._leader) == (1, None)
        assert w.metric("leads") == 0
        assert tuple(w.leader.problems()) == (NOT_READ,)
        await w.lead()
        async with store.read() as transaction:
            assert (await read_leadership(transaction)).term == 2


async def test_a_leader_without_reelection_exits_after_its_term(leading: Lead) -> None:
    async with leading(again=False) as w:
        await w.lead()
        w.turns.lose()
        assert isinstance(first_error(await w.failure()), LeadershipLost)
        assert (w.turns.acquired, w.turns.released) == (1, 1)


@pytest.mark.parametrize("fails", [True, False])
async def test_an_unexpected_error_ends_the_process(leading: Lead, fails: bool) -> None:
    async with leading(webhooks=Sender(fails=fails)) as w:
        await w.lead()
        # Holds also if the turn is over as well.
        w.turns.lose(None if fails else RuntimeError("a fault"))
        group = await w.failure()
        assert group.subgroup(RuntimeError) is not None
        assert w.turns.acquired == 1


async def test_a_released_lease_is_acquired_quickly(
    leading: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEASE_SECONDS", 0.05)
    async with leading() as w:
        await w.lead()
        w.turns.hangs = True
        w.turns.lose()
        await until(lambda: w.turns.acquired == 2)


@pytest.mark.parametrize("again", [True, False])
async def test_a_candidate_waits_for_an_unavailable_store(
    leading: Lead, store: Store, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    tries = 0
    write = store.write

    @asynccontextmanager
    async def away() -> AsyncIterator[Any]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("away")
        async with write() as transaction:
            yield transaction

    async with leading(again=again) as w:
        monkeypatch.setattr(store, "write", away)
        w.turns.begin()
        if not again:
            assert isinstance(first_error(await w.failure()), StoreUnavailable)
            return
        await until(lambda: tries == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert tries == 1
        await w.until_leads()


async def test_webhooks_are_sent_by_the_leader(leading: Lead) -> None:
    sender = Sender()
    async with leading(webhooks=sender) as w:
        assert sender.terms == []
        await w.lead()
        await until(lambda: sender.terms == [1])
        assert sender.failed is not None
        sender.failed(ValueError("a fault"))
        assert w.metric("failures_total", error="ValueError") == 1


async def test_writes_of_another_process_are_reconciled(
    leading: Lead, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    reported: list[Callable[[], None]] = []

    async def listen(heard: Store, tell: Callable[[], None]) -> None:
        assert heard is store
        reported.append(tell)
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "listen_for_changes", listen)
    async with leading() as w:
        await w.lead()
        await until(lambda: bool(reported))
        term = w.leader._term
        assert not term.reconciler._sources._notified.is_set()
        assert not term.publisher._woken.is_set()
        reported[0]()
        assert term.reconciler._sources._notified.is_set()
        assert term.publisher._woken.is_set()


@pytest.mark.parametrize(("fair_share", "namespace"), [("off", "jobs"), ("on", None)])
async def test_rights_are_checked_in_the_namespaces_of_jobs(
    leading: Lead, fair_share: str, namespace: str | None
) -> None:
    async with leading(FUMAROLE_CONTROLLER_FAIR_SHARE=fair_share) as w:
        await w.lead()
        rights = w.leader._term.rights
        assert rights._namespace() == namespace
        # Each owner has a namespace: once one exists, any of them serves for the check.
        w.leader._standby.informer.jobs.put(make_observed(namespace="team"))
        assert rights._namespace() == (namespace or "team")


async def test_a_job_with_stored_logs_is_enqueued_again(leading: Lead, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    async with leading(FUMAROLE_CONTROLLER_LOGS_FOLDER=str(tmp_path / "logs")) as w:
        await w.lead()
        w.leader._term.reconciler._logs.done("j1")
        assert w.metric("enqueued_total", reason="waits") == 1
        assert list(w.leader._term.queue._ready) == ["j1"]


async def test_sqlite_needs_no_election_and_postgresql_uses_a_lease(
    leading: Lead,
) -> None:
    async with leading() as w:
        kube = w.leader.kube
        assert isinstance(make_election(w.process, kube), NoElection)
        # No request is sent to it yet.
        shared = Store("postgresql://nobody@127.0.0.1:1/none")
        election = make_election(replace(w.process, store=shared), kube)
        assert isinstance(election, ByLease)
        assert (election.kube, election.store) == (kube, shared)
        assert (election.namespace, election.instance) == ("jobs", "test")
        lease = election.lease
        assert (lease._name, lease._namespace, lease._instance) == ("fumarole-test", "jobs", "test")
        assert re.fullmatch(f"{re.escape(socket.gethostname())}_[0-9a-f]{{16}}", lease.holder)
        await shared.close()


# The leader's components


@dataclass
class Orchestrator:
    """Submits a job to the leader, and reads its results."""

    world: World
    store: Store
    redis: Redis

    async def submit(self, **fields: Any) -> None:
        w = self.world
        submissions = Submissions(
            store=self.store, pipeline=w.core.pipeline, vault=w.core.vault,
            defaults=w.process.settings.jobs, clock=time.time, random=os.urandom,
            enqueue=w.core.jobs.enqueue,
        )  # fmt: skip
        (result,) = await submissions.submit([make_job(**fields)], "atomic")
        assert result.result == "created"

    async def record(self) -> JobRecord:
        async with self.store.read() as transaction:
            record = await find_job(transaction, "j1")
        assert record is not None
        return record

    async def until(self, state: str) -> None:
        async def look() -> bool:
            assert not self.world.running.done(), self.world.running
            return (await self.record()).state == state

        await eventually(look, seconds=60)

    async def route_of(self, sid: str) -> bytes | None:
        snapshot = await BusReader(self.redis, Keys("test")).snapshot()
        return None if snapshot is None else snapshot.routes.get(sid)


SLEEPS = {"command": ["sh", "-c", "echo hello; trap 'exit 0' TERM; sleep 60 & wait"]}


async def test_a_leader_runs_shows_and_ends_a_job(
    leading: Lead,
    store: Store,
    redis: Redis,
    embedded_cluster_kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[list[Route]] = []

    async def look(_: QueuePositions, routes: Any) -> list[str]:
        shown.append(list(routes))
        return ["j1"]

    monkeypatch.setattr("controller.sessions.queue_positions.LOOK_SECONDS", 0.05)
    monkeypatch.setattr(QueuePositions, "look", look)
    sid, kept = make_sid(1), tmp_path / "logs"
    kept.mkdir()
    async with leading(embedded_cluster_kubeconfig, FUMAROLE_CONTROLLER_LOGS_FOLDER=str(kept)) as w:
        one = Orchestrator(w, store, redis)
        await w.lead()
        await one.submit(
            resources={"cpu": 0.01, "memory": "16Mi"}, invocation=SLEEPS,
            interactive={"lab": {"kind": "web", "port": 8888}},
        )  # fmt: skip
        async with store.write() as transaction:
            await insert_session(
                transaction,
                Session(
                    sid=sid, job_id="j1", rank=0, kind="web", endpoint="lab", port=8888,
                    base_path="/", created_at=time.time(),
                ),
            )  # fmt: skip
        w.core.routes.enqueue("j1")
        await one.until("RUNNING")
        await eventually(lambda: one.route_of(sid))
        assert w.metric("routes") == 1
        assert w.leader.degraded() == ()
        # Each component of the leader has done its work.
        await until(lambda: any([r.sid for r in some] == [sid] for some in shown))
        await eventually(lambda: _knows_volcano(store))
        await SignOutWriter(redis, Keys("test")).add(sid, "t1")
        await eventually(lambda: _is_revoked(store, sid))
        # The counter increases only after the write to the store.
        await until(lambda: w.metric("sign_outs_total", result="revoked") == 1)
        assert (w.metric("enqueued_total", reason="cluster") or 0) > 0
        await w.core.commands.end("j1")
        await one.until("SUCCESS")
        await until(lambda: any(path.is_file() for path in kept.rglob("*")))
        assert w.metric("failures_total", error="LeadershipLost") is None


async def _knows_volcano(store: Store) -> bool:
    async with store.read() as transaction:
        return await find_capabilities(transaction) is not None


async def _is_revoked(store: Store, sid: str) -> bool:
    async with store.read() as transaction:
        found = await active_revocations(transaction, now=time.time())
    return [(one.sid, one.jti) for one in found] == [(sid, "t1")]
