"""How far a reader follows one job through the source: ``python -m benchmarks.walk --job``.

A job with a web endpoint is accepted, and reconciled until it has ended and is removed, with all
built-in plugins, SQLite and the embedded cluster. The walk covers the call that accepts the job,
and each call of ``reconcile``, with the tasks that they create. The informer's watches run in tasks
of their own, and are left out. Queries of the store are counted, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Engine

from benchmarks.walk import Walk
from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.prerequisites import Prerequisites
from controller.kube.client import Kube
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from deploy.local.cluster import EmbeddedCluster
from tests.controller.jobs.parts import Parts, make_parts
from tests.controller.running import eventually
from tests.controller.samples import make_job, make_pipeline

PRODUCT: Final = ("controller", "shared")
SECONDS: Final = 60.0
_ENDPOINT: Final = {"site": {"kind": "web", "port": 8000}}


async def job_walks() -> dict[str, Walk]:
    """Return the walks of a job's acceptance and of its reconciliation.

    Another job has filled the caches before (statements, checked fields).
    """
    with TemporaryDirectory() as folder:
        async with (
            EmbeddedCluster() as cluster,
            Kube.connect(cluster.kubeconfig("controller")) as kube,
        ):
            store = Store(f"sqlite:///{Path(folder) / 'store.db'}")
            await store.open()
            changed = asyncio.Event()
            informer = InformerCache(kube, instance="walk", changed=lambda _: changed.set())
            async with store.write() as transaction:
                await ensure_position(transaction, new_identity="walk")
                term = await raise_term(transaction, holder="walk")
            parts = make_parts(
                kube=kube,
                store=store,
                informer=informer,
                pipeline=make_pipeline(instance="walk"),
                term=term,
                instance="walk",
                checked=False,
            )
            ready = Prerequisites(kube, instance="walk", clock=time.monotonic)
            await eventually(lambda: _is_ready(ready))
            following = asyncio.create_task(informer.run())
            await informer.complete()
            try:
                await _life(parts, "warm", changed)
                return await _life(parts, "walked", changed)
            finally:
                following.cancel()
                await asyncio.wait([following])
                await store.close()


async def _is_ready(prerequisites: Prerequisites) -> bool:
    return await prerequisites.why_not_ready("jobs", "default") is None


async def _life(parts: Parts, job_id: str, changed: asyncio.Event) -> dict[str, Walk]:
    accepted, reconciled = (Walk(PRODUCT, own_tasks=True) for _ in range(2))
    queries = _count_queries()
    run = {"command": ["sleep", "1"]}
    job = make_job(id=job_id, invocation=run, interactive=_ENDPOINT)
    with accepted.walking():
        await parts.submit(job)
    accepted.queries = queries()
    deadline = time.monotonic() + SECONDS
    while not (await parts.record(job_id)).is_final and time.monotonic() < deadline:
        changed.clear()
        before = queries()
        with reconciled.walking():
            await parts.reconciler.reconcile(job_id)
        reconciled.queries += queries() - before
        reconciled.calls += 1
        try:
            async with asyncio.timeout(0.5):
                await changed.wait()
        except TimeoutError:
            continue
    record = await parts.record(job_id)
    if record.state != "SUCCESS":
        raise RuntimeError(f"the job is {record.state}: {record.reason}, {record.message}")
    return {"a job accepted": accepted, "a job reconciled to its end": reconciled}


def _count_queries() -> Callable[[], int]:
    count = 0

    @event.listens_for(Engine, "before_cursor_execute")
    def counted(*_: Any) -> None:
        nonlocal count
        count += 1

    return lambda: count
