"""Tests elections with failing stores: only a replica that can write leads, without flapping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any, cast

import pytest

from controller.kube.client import Kube
from controller.kube.errors import NotFound
from controller.kube.lease import Lease
from controller.leader.election import ByLease
from controller.store.errors import LeadershipLost, StoreUnavailable
from tests.clock import Clock

pytestmark = pytest.mark.usefixtures("fast_renewal")


class Leases:
    """A fake cluster that serves only Leases."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None
        self.version = 0

    async def get(self, kind: Any, name: str, namespace: str = "") -> dict[str, Any]:
        if kind.kind == "Namespace":
            return {}
        if self.kept is None:
            raise NotFound("no Lease")
        return self.kept

    async def create(self, kind: Any, body: dict[str, Any], namespace: str) -> None:
        self._renew(body)

    async def replace(self, kind: Any, name: str, body: dict[str, Any], namespace: str) -> None:
        self._renew(body)

    def _renew(self, body: dict[str, Any]) -> None:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.kept = {**body, "metadata": metadata}

    @property
    def holder(self) -> str:
        return str(self.kept["spec"]["holderIdentity"]) if self.kept else ""


class Storage:
    """A store whose link the test cuts."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.wrote_at = -inf
        self.cut = False

    @property
    def seconds_since_write(self) -> float:
        return self.clock() - self.wrote_at

    async def probe(self) -> None:
        if self.cut:
            raise StoreUnavailable("cut")
        self.wrote_at = self.clock()


@pytest.fixture
def leases() -> Leases:
    return Leases()


def stand(leases: Leases, clock: Clock, name: str) -> tuple[ByLease, Storage]:
    kube = cast(Kube, leases)  # only the used methods
    lease = Lease(
        kube, name="l", namespace="n", instance="test", holder=name, clock=clock, now=clock
    )
    store = Storage(clock)
    return ByLease(kube, lease, namespace="n", instance="test", store=store), store


@pytest.fixture
async def tasks() -> AsyncIterator[list[asyncio.Task[Any]]]:
    made: list[asyncio.Task[Any]] = []
    yield made
    for task in made:
        task.cancel()
    await asyncio.gather(*made, return_exceptions=True)


async def looks() -> None:
    """Let each replica run a few rounds."""
    await asyncio.sleep(0.15)


async def test_a_leader_that_cannot_write_frees_the_lease_for_one_that_can(
    leases: Leases, clock: Clock, tasks: list[asyncio.Task[Any]]
) -> None:
    (one, link), (other, _) = stand(leases, clock, "one"), stand(leases, clock, "other")
    await one.acquire()
    keeps = asyncio.create_task(one.renew())
    tasks.append(keeps)
    link.cut = True
    clock.now += 14
    await looks()
    assert leases.holder == "one"
    clock.now += 2
    await looks()
    assert leases.holder == ""
    # No other replica could lead, so this one stays.
    assert not keeps.done()
    async with asyncio.timeout(5):
        await other.acquire()
    assert leases.holder == "other"
    async with asyncio.timeout(5):
        with pytest.raises(LeadershipLost):
            await keeps


async def test_during_a_common_store_outage_the_leader_stays(
    leases: Leases, clock: Clock, tasks: list[asyncio.Task[Any]]
) -> None:
    (one, link), (other, its) = stand(leases, clock, "one"), stand(leases, clock, "other")
    await one.acquire()
    keeps, stands = asyncio.create_task(one.renew()), asyncio.create_task(other.acquire())
    tasks += [keeps, stands]
    await looks()
    link.cut = its.cut = True
    for _ in range(5):
        clock.now += 16
        await looks()
    assert (leases.holder, keeps.done(), stands.done()) == ("", False, False)
    link.cut = False
    await looks()
    assert (leases.holder, keeps.done()) == ("one", False)
    its.cut = False
    await looks()
    assert (leases.holder, stands.done()) == ("one", False)


async def test_a_replica_that_never_wrote_to_its_store_does_not_lead(
    leases: Leases, clock: Clock, tasks: list[asyncio.Task[Any]]
) -> None:
    one, link = stand(leases, clock, "one")
    link.cut = True
    stands = asyncio.create_task(one.acquire())
    tasks.append(stands)
    await looks()
    assert (leases.holder, stands.done()) == ("", False)
    link.cut = False
    async with asyncio.timeout(5):
        await stands
    assert leases.holder == "one"
