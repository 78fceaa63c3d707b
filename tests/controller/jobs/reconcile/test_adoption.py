"""What somebody wrote on a VolcanoJob of ours may be anything: the leader goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.reconcile.adoption import Adoption
from controller.store.database import Store
from controller.store.instance.identity import ensure_position
from controller.store.instance.leadership import raise_term
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import companions_of
from controller.volcano.names import peer_service_name
from tests.controller.kube.api_server import Script, says, serving
from tests.controller.samples import make_defaults, make_observed

SPEC = json.dumps({"id": "j1", "owner": {"user": "ada"}, "image": "busybox"})


async def intended(folder: Path) -> list[tuple[str, str, str]]:
    """Return the companions that the store is to look for."""
    store = Store(f"sqlite:///{folder}/store.db")
    async with store.read() as transaction:
        known = await companions_of(transaction, "j1")
    await store.close()
    return [(one.kind, one.namespace, one.name) for one in known]


async def adopt(folder: Path, **annotations: str) -> tuple[JobRecord | None, tuple[str, ...]]:
    """Have a new store meet a VolcanoJob with *annotations*; return what it makes of it."""
    store = Store(f"sqlite:///{folder}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="new")
        term = await raise_term(transaction)
    script = Script(says({"reason": "NotFound"}, 404), says({"metadata": {}}))
    async with serving(script, folder) as kube:
        informer = InformerCache(kube, instance="test", changed=lambda _job: None)
        named = {f"fumarole.dev/{name.replace('_', '-')}": v for name, v in annotations.items()}
        informer.jobs.put(make_observed(annotations=named))
        adoption = Adoption(
            store=store,
            term=term,
            kube=kube,
            informer=informer,
            cluster=JobObjects(kube, instance="test"),
            instance="test",
            namespace="jobs",
            defaults=make_defaults(),
            clock=time.time,
        )
        problems = await adoption._settle()
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    await store.close()
    return record, problems


@pytest.mark.parametrize("word", ["nan", "inf", "1e999", "1_0", "-1", "²", "soon", "9" * 5000])
async def test_a_number_that_is_none_is_left_out(tmp_path: Path, word: str) -> None:
    record, problems = await adopt(
        tmp_path, spec=SPEC, attempt=word, created=word, first_start=word, allocated_seconds=word
    )
    assert record is not None
    assert problems == ()
    assert (record.attempt, record.created_at, record.started_at) == (1, 1.0, None)
    assert record.allocated_seconds is None


@pytest.mark.parametrize("spec", ["", "[]", "{", "[" * 200_000, '{"id":"j1","id":"j1"}', "\ud800"])
async def test_what_is_no_job_is_told_and_not_adopted(tmp_path: Path, spec: str) -> None:
    record, problems = await adopt(tmp_path, spec=spec)
    assert record is None
    assert len(problems) == 1
    assert "jobs/j-j1 cannot be adopted" in problems[0]


async def test_the_service_by_which_peers_reach_an_adopted_job_is_looked_for(
    tmp_path: Path,
) -> None:
    # No VolcanoJob owns it: nobody else would ever remove it.
    record, _ = await adopt(tmp_path, spec=SPEC)
    assert record is not None
    assert await intended(tmp_path) == [("Service", "jobs", peer_service_name("j1"))]


async def test_a_job_of_a_later_version_is_adopted_with_all_that_it_says(tmp_path: Path) -> None:
    spec = json.loads(SPEC) | {"colour": {"of": "2028"}, "replicas": 2}
    record, problems = await adopt(tmp_path, spec=json.dumps(spec))
    assert problems == ()
    assert record is not None
    assert (record.spec, record.owner_user) == (spec, "ada")
    # What is only wrong is of no version.
    other = tmp_path / "other"
    other.mkdir()
    record, problems = await adopt(other, spec=json.dumps(spec | {"replicas": "many"}))
    assert record is None
    assert "cannot be adopted" in problems[0]
