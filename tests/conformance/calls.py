"""Shared parts of the cases: the APIs, objects to create, and assertions about refusals."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from kubernetes_asyncio import client, watch
from kubernetes_asyncio.client.exceptions import ApiException

from tests.conformance.responses import REFUSALS

Object = dict[str, Any]
REAL = bool(os.environ.get("KUBECONFIG"))
"""Whether the cluster is one of somebody's own, and not the embedded one."""

PATIENCE = 10.0 if REAL else 1.0
"""By how much the waits of the cases are longer: a real cluster pulls images first."""

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
BATCH = ("batch.volcano.sh", "v1alpha1")
BUS = ("bus.volcano.sh", "v1alpha1")
SCHEDULING = ("scheduling.volcano.sh", "v1beta1")


class Kube:
    """The APIs of one cluster."""

    def __init__(self, api: client.ApiClient) -> None:
        self.api = api
        # The cases pass dictionaries where models are declared, as clients do.
        self.core: Any = client.CoreV1Api(api)
        self.custom: Any = client.CustomObjectsApi(api)
        self.leases: Any = client.CoordinationV1Api(api)

    async def call(self, method: str, path: str, body: Any = None, **rest: Any) -> tuple[int, Any]:
        """Send a request unchanged; return its status and decoded response, whatever they are."""
        headers = {"Accept": "application/json", **rest.pop("headers", {})}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            response = await self.api.call_api(
                path,
                method,
                query_params=list(rest.pop("query", {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                response_types_map={},
                _preload_content=False,
            )
        except ApiException as error:
            return error.status, error.body
        text = await response.read()
        return response.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    async def job(self, namespace: str, name: str) -> Object:
        """Return a Volcano job."""
        found: Object = await self.custom.get_namespaced_custom_object(
            *BATCH, namespace, "jobs", name
        )
        return found

    async def create_job(self, namespace: str, job: Object) -> Object:
        """Create a Volcano job."""
        made: Object = await self.custom.create_namespaced_custom_object(
            *BATCH, namespace, "jobs", job
        )
        return made

    async def phase(self, namespace: str, name: str) -> str:
        """Return a job's phase, or an empty string while it has none."""
        status = (await self.job(namespace, name)).get("status") or {}
        return str(status.get("state", {}).get("phase", ""))


async def refused(row: str, call: Awaitable[Any], *, older: str = "", **words: str) -> None:
    """Assert that *call* is refused as a real server does, by *row* of `REFUSALS`.

    A real cluster with an older release of Volcano may refuse it by the row *older*.
    """
    with pytest.raises(ApiException) as caught:
        await call
    status = json.loads(caught.value.body or b"{}")
    refusal = REFUSALS[row]
    if older and REAL and caught.value.status == REFUSALS[older].code:
        refusal = REFUSALS[older]
    assert (caught.value.status, status.get("reason", "")) == (refusal.code, refusal.reason), status
    assert status["kind"] == "Status"
    assert status["code"] == refusal.code
    assert refusal.says.format(**words) in status["message"]


def within(seconds: float) -> asyncio.Timeout:
    """Raise after *seconds*; a real cluster gets more time."""
    return asyncio.timeout(seconds * PATIENCE)


async def eventually(
    holds: Callable[[], Awaitable[Any]], *, seconds: float = 20.0, every: float = 0.05
) -> Any:
    """Return the result of *holds* as soon as it is true."""
    async with within(seconds):
        while not (found := await holds()):
            await asyncio.sleep(every)
        return found


async def watched(
    call: Callable[..., Any], *arguments: Any, **rest: Any
) -> AsyncGenerator[tuple[str, Any]]:
    """Yield type and object of a watch's events until the watch ends."""
    async with watch.Watch() as stream:
        async for event in stream.stream(call, *arguments, **rest):
            yield event["type"], event["object"]


def make_config_map(name: str, **rest: Any) -> Object:
    """Return a ConfigMap."""
    return {"metadata": {"name": name, **rest}, "data": {"a": "1"}}


def make_pod(name: str, **spec: Any) -> Object:
    """Return a Pod with a scheduling gate, so that it stays unscheduled."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    spec = {
        "restartPolicy": "Never",
        "schedulingGates": [{"name": "example.com/wait"}],
        "containers": [container],
        **spec,
    }
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def make_job(name: str, *, script: str = "exit 0", replicas: int = 1, **spec: Any) -> Object:
    """Return a Volcano job of one task that runs *script* in a shell."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", script]}],
    }
    task = {"name": "job", "replicas": replicas, "template": {"spec": pod}}
    return {
        "apiVersion": "/".join(BATCH),
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [task], **spec},
    }
