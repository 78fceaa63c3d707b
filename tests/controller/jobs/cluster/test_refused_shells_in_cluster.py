"""Tests that rights of hubs are restored after a refused shell, on the embedded cluster."""

from __future__ import annotations

import pytest

from controller.jobs.cluster.prerequisites import Prerequisites
from controller.jobs.cluster.refused_shells import RefusedShells
from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES, ROLE_BINDINGS
from controller.site.owner_shares import RoleGrant
from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.jobs.job_rows import insert_job
from controller.store.sessions.session_rows import (
    Session,
    end_session,
    insert_session,
    record_refused_shell,
)
from controller.volcano.names import INSTANCE_LABEL
from deploy.local.cluster import EmbeddedCluster
from tests.clock import Clock
from tests.controller.samples import make_record

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

GRANT = RoleGrant(role="fumarole-terminals", namespace="system", account="hub")
BINDING = "fumarole.fumarole-terminals"


async def open_terminal(store: Store, sid: str, namespace: str) -> None:
    async with store.write() as transaction:
        record = make_record(id=f"j-{sid}", namespace=namespace)
        await insert_job(transaction, record, labels={})
        shell = Session(
            sid=sid, job_id=record.id, rank=0, kind="terminal", endpoint=None, port=None,
            base_path="/", created_at=1.0,
        )  # fmt: skip
        await insert_session(transaction, shell)


async def test_a_refused_shell_restores_the_role_binding_of_its_hub(
    cluster: EmbeddedCluster, admin: Kube, store_url: str
) -> None:
    for name in ("refused", "ended", "other"):
        metadata = {"name": name, "labels": {INSTANCE_LABEL: "test"}}
        await admin.create(NAMESPACES, {"metadata": metadata})

    async def has_binding(namespace: str) -> bool:
        found = await admin.list(ROLE_BINDINGS, namespace)
        return BINDING in [one["metadata"]["name"] for one in found]

    clock = Clock(1000.0)
    async with Kube.connect(cluster.kubeconfig("controller")) as kube:
        store = Store(store_url)
        await store.open()
        async with store.write() as transaction:
            await ensure_position(transaction, new_identity="test")
        for sid in ("refused", "ended", "other"):
            await open_terminal(store, sid, sid)
        prerequisites = Prerequisites(kube, instance="test", clock=clock, grants=[GRANT])
        shells = RefusedShells(store, prerequisites=prerequisites, failed=print)
        await shells.look()
        assert not await has_binding("refused")
        async with store.write() as transaction:
            for sid in ("refused", "ended"):
                await record_refused_shell(transaction, sid, now=1000.0)
            await end_session(transaction, "ended", reason="stopped", now=1000.0)
        await shells.look()
        found = [await has_binding(name) for name in ("refused", "ended", "other")]
        assert found == [True, False, False]
        # It is deleted again, and another shell is refused.
        await admin.delete(ROLE_BINDINGS, BINDING, "refused")
        clock.now += 60.0
        await shells.look()
        assert not await has_binding("refused")
        async with store.write() as transaction:
            await record_refused_shell(transaction, "refused", now=1060.0)
        await shells.look()
        assert await has_binding("refused")
        await store.close()
