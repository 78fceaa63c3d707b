"""Tests ``dryRun=All``: the server returns the object as it would be, and stores nothing."""

from __future__ import annotations

from typing import Any

from tests.conformance.calls import (
    BATCH,
    Kube,
    Object,
    eventually,
    make_job,
    refused,
)


async def _try_job(kube: Kube, namespace: str, job: Object, **query: str) -> Object:
    made: Object = await kube.custom.create_namespaced_custom_object(
        *BATCH, namespace, "jobs", job, dry_run="All", **query
    )
    return made


async def _jobs(kube: Kube, namespace: str) -> list[Any]:
    found = await kube.custom.list_namespaced_custom_object(*BATCH, namespace, "jobs")
    return list(found["items"])


async def test_a_dry_run_returns_defaults_and_stores_no_job(kube: Kube, namespace: str) -> None:
    tried = await _try_job(kube, namespace, make_job("a", replicas=2))
    # The schema's defaults and the mutating webhook fill these fields in.
    assert tried["spec"]["queue"] == "default"
    assert tried["spec"]["minAvailable"] == 2
    assert tried["metadata"]["uid"]
    assert await _jobs(kube, namespace) == []
    assert (await kube.core.list_namespaced_pod(namespace)).items == []
    made = await kube.create_job(namespace, make_job("a", script="sleep 60"))
    assert made["metadata"]["uid"] != tried["metadata"]["uid"]


async def test_a_dry_run_is_refused_like_the_create(kube: Kube, namespace: str) -> None:
    doubled = make_job("a")
    doubled["spec"]["tasks"] *= 2
    await refused("a job with a doubled task name", _try_job(kube, namespace, doubled))
    elsewhere = make_job("a", queue="no-such-queue")
    await refused("a job for an unknown queue", _try_job(kube, namespace, elsewhere))
    bare = make_job("a")
    bare["spec"]["tasks"] = []
    row, older = "a custom resource that breaks its schema", "a job without tasks, before 1.14"
    await refused(row, _try_job(kube, namespace, bare), older=older)
    missing = _try_job(kube, "no-such", make_job("a"))
    await refused("create in a missing namespace", missing, name="no-such")
    await kube.create_job(namespace, make_job("b", script="sleep 60"))
    await refused("create a duplicate", _try_job(kube, namespace, make_job("b")))


async def test_strict_validation_names_fields_that_would_be_dropped(
    kube: Kube, namespace: str
) -> None:
    job = make_job("a", noSuchField=1)
    assert "noSuchField" not in (await _try_job(kube, namespace, job))["spec"]
    strict = _try_job(kube, namespace, job, field_validation="Strict")
    await refused("strict validation of an unknown field", strict)


async def test_a_dry_run_checks_a_quota_without_using_it(kube: Kube, namespace: str) -> None:
    # The quota is on Services, because clusters put ConfigMaps of their own into each namespace.
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/services": "1"}}}
    await kube.core.create_namespaced_resource_quota(namespace, quota)
    path = f"/api/v1/namespaces/{namespace}/services"

    async def create(name: str, **query: str) -> tuple[int, str]:
        service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
        code, said = await kube.call("POST", path, service, query=query)
        return code, str(said)

    async def is_used_up() -> bool:
        # A real quota counts once its controller has looked at it.
        return (await create("b", dryRun="All"))[0] == 403

    for _ in range(3):
        assert (await create("a", dryRun="All"))[0] == 201
    assert (await create("a"))[0] == 201
    await eventually(is_used_up)
    assert "exceeded quota: q" in (await create("b", dryRun="All"))[1]
