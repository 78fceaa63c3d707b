"""Tests webhooks that change or deny VolcanoJobs and pods, and the jobs' outcomes."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.kube.client import Kube
from controller.kube.kinds import PODS, Kind
from deploy.local.cluster import EmbeddedCluster
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = pytest.mark.timeout(240)

SECONDS = 90.0
MUTATING, VALIDATING = (
    Kind("admissionregistration.k8s.io/v1", f"{name.lower()}s", name, namespaced=False)
    for name in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
PROXY = {"name": "proxy", "image": "busybox", "resources": {"limits": {"memory": "16Mi"}}}
FOREVER = "trap 'exit 0' TERM; sleep 3600 & wait"
WORDS = "the licence server is away"


def _patch_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of a mesh, a policy and a tenant's rules to the object."""
    name, of_pod = request["name"], request["kind"]["kind"] == "Pod"
    if of_pod and name.startswith("j-mesh-"):
        script = "sleep 1; exit 5" if "breaks" in name else FOREVER
        container = {**PROXY, "command": ["sh", "-c", script]}
        return [{"op": "add", "path": "/spec/containers/-", "value": container}]
    if of_pod and name.startswith("j-stripped"):
        labels = ("fumarole.dev~1job", "volcano.sh~1task-spec")
        return [{"op": "remove", "path": f"/metadata/labels/{label}"} for label in labels]
    return []


def _reviewed(request: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if request["name"] == "j-denied" and not request["dryRun"]:
        return response | {"allowed": False, "status": {"code": 503, "message": WORDS}}
    if patch := _patch_of(request):
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return response | {"patchType": "JSONPatch", "patch": encoded}
    return response


async def _review(request: web.Request) -> web.Response:
    asked = (await request.json())["request"]
    return web.json_response({"response": _reviewed(asked)})


@asynccontextmanager
async def webhooks(admin: Kube) -> AsyncIterator[None]:
    """Make the API server call these webhooks for created pods and VolcanoJobs."""
    app = web.Application()
    app.router.add_post("/", _review)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    rows = ((MUTATING, "", "v1", "pods"), (VALIDATING, "batch.volcano.sh", "v1alpha1", "jobs"))
    for kind, group, version, plural in rows:
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [plural]}
        hook = {
            "name": f"{plural}.example.com", "clientConfig": {"url": url, "caBundle": ""},
            "rules": [{**rule, "operations": ["CREATE"]}], "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }  # fmt: skip
        await admin.create(kind, {"metadata": {"name": plural}, "webhooks": [hook]})
    try:
        yield
    finally:
        await runner.cleanup()


def runs(script: str) -> dict[str, Any]:
    return {"invocation": {"command": ["sh", "-c", script]}}


async def test_changes_and_denials_by_admission_webhooks_are_explained(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        webhooks(admin),
        running(
            Controller(
                tmp_path / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis_server.url,
                instance="admission",
                FUMAROLE_CONTROLLER_SIDECAR_SECONDS="0",
            )
        ) as controller,
    ):
        await controller.submit("mesh-ends", **runs("sleep 1"))
        await controller.submit("mesh-fails", **runs("sleep 1; exit 7"))
        await controller.submit("mesh-breaks", **runs("sleep 3"))
        await controller.submit("stripped", **runs("sleep 1"))
        await controller.submit("denied")

        ended = await controller.until("mesh-ends", "SUCCESS", "FAILURE", seconds=SECONDS)
        assert (ended["state"], ended["reason"]) == ("SUCCESS", "completed")
        assert "its containers proxy went on after its program" in ended["message"]
        failed = await controller.until("mesh-fails", "SUCCESS", "FAILURE", seconds=SECONDS)
        assert (failed["state"], failed["reason"]) == ("FAILURE", "exit_code")
        assert failed["details"]["exit_code"] == 7
        broken = await controller.until("mesh-breaks", "SUCCESS", "FAILURE", seconds=SECONDS)
        shown = (broken["state"], broken["details"]["cause"], broken["details"]["container"])
        assert shown == ("FAILURE", "sidecar", "proxy")

        async def are_gone() -> bool:
            names = [pod["metadata"]["name"] for pod in await admin.list(PODS, "jobs")]
            return not {"j-mesh-ends-job-0", "j-mesh-fails-job-0"} & set(names)

        await eventually(are_gone, seconds=SECONDS, what="what a webhook put in runs on")

        async def is_charged() -> bool:
            usage = await controller.call("GET", "/v1/usage?after=0")
            final = [one for one in usage["items"] if one["final"] and one["job"] == "stripped"]
            return [(one["rank"], one["seconds"] > 0) for one in final] == [(0, True)]

        await controller.until("stripped", "SUCCESS", seconds=SECONDS)
        await eventually(is_charged, seconds=SECONDS, what="pods without labels cost nothing")

        denied = await controller.job("denied")
        assert denied["reason"] == "preparing"
        assert WORDS in denied["message"]
