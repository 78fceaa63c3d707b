"""Tests leader election of controllers on PostgreSQL: one leads, all respond, failover."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controller.kube.client import Kube, Object
from controller.kube.errors import KubeError, Throttled, Unavailable
from controller.kube.kinds import LEASES, PODS, VCJOBS
from controller.kube.lease import DURATION_SECONDS, Lease
from controller.leader.election import ByLease
from controller.store.errors import LeadershipLost
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.leader.test_election_rounds import Reached
from tests.controller.postgres import Postgres
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(240)

TAKEOVER_SECONDS = 15.0


def lease(kube: Kube, holder: str, clock: Clock) -> Lease:
    return Lease(
        kube, name="l", namespace="default", instance="test", holder=holder, clock=clock,
        now=time.time,
    )  # fmt: skip


async def version(kube: Kube) -> str:
    """Return the resourceVersion of the Lease."""
    return str((await kube.get(LEASES, "l", "default"))["metadata"]["resourceVersion"])


async def test_a_lease_has_one_holder_until_it_expires(own_cluster: EmbeddedCluster) -> None:
    async with Kube.connect(own_cluster.kubeconfig("admin")) as kube:
        clock = Clock(100.0)
        one, other = lease(kube, "one", clock), lease(kube, "other", clock)
        both = await asyncio.gather(one.take(), other.take())
        assert sorted(both) == [False, True]
        holder, waiting = (one, other) if both[0] else (other, one)
        assert not await waiting.take()
        clock.now += DURATION_SECONDS - 1
        assert await holder.renew()
        clock.now += 2
        # The Lease was renewed meanwhile, whatever the holder's clock says.
        assert not await waiting.take()
        clock.now += DURATION_SECONDS
        assert await waiting.take()
        assert not await holder.renew()
        await waiting.release()
        assert await holder.take()
        (found,) = [await kube.get(LEASES, "l", "default")]
        assert found["spec"]["leaseTransitions"] >= 2


async def take_fails(other: Lease, error: KubeError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have *other* try to take the Lease, whose read ends with *error*."""

    async def get(*_: object) -> Object:
        raise error

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(other._kube, "get", get)
        with pytest.raises(type(error)):
            await other.take()


async def test_a_lease_is_kept_through_an_api_server_outage(
    own_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(other: Lease) -> None:
        await take_fails(other, Unavailable("the API server is away"), monkeypatch)

    async with Kube.connect(own_cluster.kubeconfig("admin")) as kube:
        clock = Clock(100.0)
        one, other = lease(kube, "one", clock), lease(kube, "other", clock)
        assert await one.take()
        assert not await other.take()
        for _ in range(10):
            clock.now += 4
            await fails(other)
        # Whichever replica is first afterwards, the holder keeps the Lease.
        assert not await other.take()
        clock.now += DURATION_SECONDS - 1
        assert not await other.take()
        assert await one.renew()
        # A call that fails now and then does not prevent a takeover.
        assert not await other.take()
        clock.now += DURATION_SECONDS / 2 - 1
        await fails(other)
        assert not await other.take()
        clock.now += DURATION_SECONDS / 2 + 1
        assert await other.take()


async def test_a_throttled_candidate_takes_over_after_three_times_the_duration(
    own_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def throttled(other: Lease) -> None:
        await take_fails(other, Throttled("too many requests", status=429), monkeypatch)

    async with Kube.connect(own_cluster.kubeconfig("admin")) as kube:
        clock = Clock(100.0)
        one, other = lease(kube, "one", clock), lease(kube, "other", clock)
        assert await one.take()
        assert not await other.take()
        for _ in range(5):
            clock.now += DURATION_SECONDS / 2
            await throttled(other)
            # The holder may be throttled as well.
            assert not await other.take()
        clock.now += DURATION_SECONDS / 2
        assert await other.take()


async def test_a_leader_that_finds_another_holder_stops(
    own_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.leader.election.RENEW_SECONDS", 0.05)
    async with Kube.connect(own_cluster.kubeconfig("admin")) as kube:
        clock = Clock(100.0)
        election = ByLease(
            kube,
            lease(kube, "one", clock),
            namespace="default",
            instance="test",
            store=Reached(),
        )
        await election.acquire()
        taken = await version(kube)
        keeping = asyncio.create_task(election.renew())
        async with asyncio.timeout(20):
            while await version(kube) == taken:
                await asyncio.sleep(0.02)
        assert not keeping.done()
        patch = {"spec": {"holderIdentity": "other"}}
        await kube.merge(LEASES, "l", patch, "default")
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(keeping, 20)


@pytest.mark.needs("postgres")
async def test_another_replica_takes_over_and_all_replicas_respond(
    own_cluster: EmbeddedCluster, redis_server: RedisServer, postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.new_database()
    controllers = [
        Controller(
            tmp_path,
            kubeconfig=own_cluster.kubeconfig("controller"),
            redis_url=redis_server.url,
            instance="many",
            name=f"c{number}",
            FUMAROLE_CONTROLLER_STORE_URL=url,
        )
        for number in range(2)
    ]
    async with AsyncExitStack() as stack, Kube.connect(own_cluster.kubeconfig("admin")) as kube:
        for one in controllers:
            await stack.enter_async_context(running(one))
        await eventually(lambda: leader(controllers), what="nobody leads")
        first = await leader(controllers)
        assert first is not None
        (other,) = [one for one in controllers if one is not first]
        # A standby accepts jobs too.
        await other.submit("led1")
        await first.until("led1", "RUNNING")
        began = time.monotonic()
        await first.kill()
        await kube.delete(PODS, "j-led1-job-0", "jobs")
        await other.submit("led2")

        async def taken_over() -> bool:
            return await other.leads()

        await eventually(taken_over, seconds=60, what="nobody took over")
        assert time.monotonic() - began < TAKEOVER_SECONDS
        await other.until("led2", "RUNNING")

        async def knows_how_it_ended() -> bool:
            history = await other.call("GET", "/v1/jobs/led1/history")
            runs = [run for attempt in history["attempts"] for run in attempt["runs"]]
            return len(runs) == 2 and [run["exit_code"] for run in runs if run["ended_at"]] == [0]

        # The pod left while no replica led, and the standby saw it.
        await eventually(knows_how_it_ended, seconds=60, what="how a pod ended is not known")
        await first.start()
        assert await first.is_ready()
        # A leader that stops in order releases the Lease at once.
        began = time.monotonic()
        await other.stop()
        await eventually(lambda: leader([first]), seconds=30)
        assert time.monotonic() - began < DURATION_SECONDS
        await first.call("DELETE", "/v1/jobs/led1", expect=202)
        await first.until("led1", "SUCCESS")
        history = await first.call("GET", "/v1/jobs/led2/history")
        assert len(history["attempts"]) == 1
        jobs = await kube.list(VCJOBS, labels="fumarole.dev/job=led2")
        assert [one["metadata"]["uid"] for one in jobs] == [history["attempts"][0]["uid"]]


async def leader(controllers: list[Controller]) -> Controller | None:
    leading = [one for one in controllers if await one.leads()]
    return leading[0] if leading else None
