"""Tests single election rounds: requests to the store and the Lease, and their results."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, cast

import pytest

from controller.kube.client import Kube
from controller.kube.errors import NotFound, Unavailable
from controller.kube.lease import Lease
from controller.leader import election
from controller.leader.election import ByLease, NoElection
from controller.store.errors import LeadershipLost
from tests.clock import Clock
from tests.controller.leader.test_election_store import Leases

pytestmark = pytest.mark.usefixtures("fast_renewal")


class Cluster(Leases):
    """A cluster that lacks the namespace at first, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.namespaces: list[dict[str, Any]] = []
        self.fails = 0

    async def get(self, kind: Any, name: str, namespace: str = "") -> dict[str, Any]:
        if kind.kind == "Namespace":
            if not self.namespaces:
                raise NotFound("no Namespace")
            return self.namespaces[0]
        if self.fails:
            self.fails -= 1
            raise Unavailable("away")
        return await super().get(kind, name, namespace)

    async def create(self, kind: Any, body: dict[str, Any], namespace: str = "") -> None:
        if kind.kind == "Namespace":
            self.namespaces.append(body)
            return
        assert self.namespaces
        await super().create(kind, body, namespace)


class OverError(Exception):
    """Ends the test."""


class Silences:
    """A store with a scripted silence, in seconds without a successful write, for each round.

    ``holders`` lists the Lease's holder at the start of each round, ``versions`` its writes.
    """

    def __init__(self, cluster: Leases, *seconds: float) -> None:
        self._cluster = cluster
        self.seconds = list(seconds)
        self.holders: list[str] = []
        self.versions: list[int] = []
        self.probes = 0
        self.hangs = asyncio.Event()
        self.hangs.set()

    @property
    def seconds_since_write(self) -> float:
        self.holders.append(self._cluster.holder)
        self.versions.append(self._cluster.version)
        if not self.seconds:
            raise OverError
        return self.seconds.pop(0)

    async def probe(self) -> None:
        self.probes += 1
        await self.hangs.wait()


class Reached:
    """A store that is always written."""

    seconds_since_write = 0.0

    async def probe(self) -> None:
        return


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def stand(
    cluster: Leases, clock: Clock, store: Silences | None = None, name: str = "one"
) -> ByLease:
    kube = cast(Kube, cluster)  # only the used methods
    lease = Lease(
        kube, name="l", namespace="n", instance="test", holder=name, clock=clock, now=clock
    )
    return ByLease(kube, lease, namespace="n", instance="test", store=store or Reached())


@pytest.mark.parametrize(
    ("silences", "rounds"),
    [([0.0], 1), ([4.9], 1), ([5.0], 5), ([6.0, 0.0, 6.0], 7), ([inf, inf], 3)],
)
async def test_a_candidate_must_have_written_recently(
    cluster: Cluster, clock: Clock, silences: list[float], rounds: int
) -> None:
    store = Silences(cluster, *silences, *([0.0] * 9))
    async with asyncio.timeout(5):
        await stand(cluster, clock, store).acquire()
    assert store.holders == [""] * rounds
    assert cluster.holder == "one"
    # Each round probes the store, so that its return is noticed.
    await asyncio.sleep(0)
    assert store.probes == rounds


async def test_the_lease_namespace_is_created_with_retries(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.fails = 2
    async with asyncio.timeout(5):
        await stand(cluster, clock).acquire()
    assert cluster.holder == "one"
    (made,) = cluster.namespaces
    assert made["metadata"]["name"] == "n"
    assert made["metadata"]["labels"]["fumarole.dev/instance"] == "test"
    assert caplog.text.count("cannot take the Lease") == 2


async def test_a_lease_is_released_without_store_and_acquired_after_a_write(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Silences(cluster, 0.0)
    one = stand(cluster, clock, store)
    await one.acquire()
    store.seconds = [0.0, 14.9, 15.0, 14.9, 5.0, 4.9, 14.9]
    store.holders.clear()
    async with asyncio.timeout(5):
        with pytest.raises(OverError):
            await one.renew()
    assert store.holders == ["one", "one", "one", "", "", "", "one", "one"]
    # The Lease is renewed as well, so that no other replica finds it expired.
    assert store.versions[-1] > store.versions[-2]
    assert caplog.text.count("releasing the Lease for a replica that reaches it") == 1
    assert store.probes >= 7


async def test_a_temporarily_unrenewable_lease_is_still_held(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    one = stand(cluster, clock)
    await one.acquire()
    cluster.fails, before = 3, cluster.version
    renewing = asyncio.create_task(one.renew())
    async with asyncio.timeout(5):
        while cluster.version < before + 2:
            await asyncio.sleep(0.005)
    assert caplog.text.count("cannot renew the Lease") == 3
    renewing.cancel()
    await asyncio.wait([renewing])


async def test_a_former_leader_competes_like_any_candidate(cluster: Cluster, clock: Clock) -> None:
    store = Silences(cluster, 0.0, 15.0, 15.0)
    one, other = stand(cluster, clock, store), stand(cluster, clock, name="other")
    await one.acquire()
    renewing = asyncio.create_task(one.renew())
    async with asyncio.timeout(5):
        while cluster.holder:
            await asyncio.sleep(0)
        await other.acquire()
        with pytest.raises(LeadershipLost, match="another controller holds"):
            await renewing
        await other.release()
        store.seconds = [0.0, 14.9, 14.9]
        await one.acquire()
        store.holders.clear()
        with pytest.raises(OverError):
            await one.renew()
    assert store.holders == ["one"] * 3
    # The Lease is renewed in each of these rounds, although the store has long been silent.
    assert len(set(store.versions[-3:])) == 3


async def test_a_hanging_store_is_probed_once_without_waiting(
    cluster: Cluster,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Silences(cluster, *([0.0] * 5))
    store.hangs.clear()
    one = stand(cluster, clock, store)
    await one.acquire()
    with pytest.raises(OverError):
        await one.renew()
    assert store.probes == 1
    # A replica that releases the Lease no longer waits for it.
    await one.release()
    assert cluster.holder == ""
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    # A slow probe is cancelled, and the store is probed again.
    monkeypatch.setattr(election, "PROBE_SECONDS", 0.01)
    store.seconds = [0.0] * 20
    await one.acquire()
    with pytest.raises(OverError):
        await one.renew()
    assert store.probes > 2
    await one.release()
    assert caplog.text.count("the store is unavailable\n") == 1, "it is told once a minute"


async def test_a_single_controller_leads_until_the_store_fences_it() -> None:
    only = NoElection()
    await only.acquire()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(only.renew(), 0.05)
    await only.release()
    # A replica that lost its turn stands again only if there are others.
    assert (only.again, ByLease.again) == (False, True)
