from __future__ import annotations

from controller.jobs.spec.problems import JobRejected
from controller.store.database import Store
from controller.store.instance import find_capabilities, store_capabilities
from controller.volcano.preflight import read_openapi
from tests.controller.samples import make_job, make_pipeline
from tests.controller.volcano.test_capabilities import KIND, schema_of

TOPOLOGY = {"network": {"mode": "hard", "tier": 1}}


async def learn(store: Store, version: str) -> str:
    schema = schema_of(version) | {"x-kubernetes-group-version-kind": [KIND]}
    learned = read_openapi({"components": {"schemas": {"job": schema}}})
    async with store.write() as transaction:
        await store_capabilities(transaction, learned)
    return learned.digest


async def test_the_latest_discovered_features_are_found_by_other_replicas(store: Store) -> None:
    async with store.read() as transaction:
        assert await find_capabilities(transaction) is None
    old, new = await learn(store, "1.11"), await learn(store, "1.15")
    assert old != new
    async with store.read() as transaction:
        found = await find_capabilities(transaction, unless=old)
        assert found is not None
        assert found.digest == new
        assert found.lacks({"spec": {"noSuchField": 1}})
        assert await find_capabilities(transaction, unless=new) is None


async def test_every_replica_refuses_alike_after_discovery(store: Store) -> None:
    # Neither replica ever saw a cluster.
    replicas = make_pipeline(), make_pipeline()

    async def refused() -> list[bool]:
        found = []
        for replica in replicas:
            async with store.read() as transaction:
                await replica.learn_from(transaction)
            try:
                await replica.plan(make_job(topology=TOPOLOGY))
                found.append(False)
            except JobRejected as rejected:
                found.append([one.path for one in rejected.problems] == ["topology.network"])
        return found

    assert await refused() == [False, False]
    await learn(store, "1.11")
    assert await refused() == [True, True]
    await learn(store, "1.13")
    assert await refused() == [False, False]
