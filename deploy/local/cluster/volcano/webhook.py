"""The webhook server: receives AdmissionReviews and returns the decisions of `admission`."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from deploy.local.cluster.client import Client, Resource
from deploy.local.cluster.volcano import admission
from deploy.local.cluster.volcano.types import unreadable

Object = dict[str, Any]
Queues = Callable[[], Mapping[str, Object]]
_CONFIGURATIONS: Final = "admissionregistration.k8s.io/v1"
_MUTATING: Final = Resource(_CONFIGURATIONS, "mutatingwebhookconfigurations", namespaced=False)
_VALIDATING: Final = Resource(_CONFIGURATIONS, "validatingwebhookconfigurations", namespaced=False)


def make_app(queues: Queues) -> web.Application:
    """Return the application; *queues* returns the present Queues."""

    async def mutate_job(request: web.Request) -> web.Response:
        review = await request.json()
        job = review["request"]["object"]
        if denial := unreadable(job):
            return _answer(review, denial)
        spec = admission.completed_job(job)["spec"]
        if spec == job["spec"]:
            return _answer(review, None)
        return _answer(review, None, [{"op": "replace", "path": "/spec", "value": spec}])

    async def validate_job(request: web.Request) -> web.Response:
        review = await request.json()
        asked = review["request"]
        if asked["operation"] == "UPDATE":
            denial = admission.update_denial(asked["oldObject"], asked["object"])
        else:
            denial = admission.job_denial(asked["object"], queues())
        return _answer(review, denial)

    async def mutate_queue(request: web.Request) -> web.Response:
        review = await request.json()
        queue = review["request"]["object"]
        if denial := admission.unreadable_queue(queue):
            return _answer(review, denial)
        spec = admission.completed_queue(queue)["spec"]
        return _answer(review, None, [{"op": "add", "path": "/spec", "value": spec}])

    async def validate_queue(request: web.Request) -> web.Response:
        review = await request.json()
        asked = review["request"]
        if asked["operation"] == "DELETE":
            return _answer(review, admission.queue_deletion_denial(asked["name"], queues()))
        return _answer(review, admission.queue_denial(asked["object"], queues()))

    app = web.Application(client_max_size=4 * 1024 * 1024)
    app.router.add_post("/jobs/mutate", mutate_job)
    app.router.add_post("/jobs/validate", validate_job)
    app.router.add_post("/queues/mutate", mutate_queue)
    app.router.add_post("/queues/validate", validate_queue)
    return app


async def install_webhooks(client: Client, port: int, authority: bytes) -> None:
    """Make the API server call this process; replace an existing configuration."""
    jobs = ("batch.volcano.sh", "v1alpha1", "jobs")
    queues = ("scheduling.volcano.sh", "v1beta1", "queues")
    bundle = base64.b64encode(authority).decode()

    def hook(name: str, path: str, what: tuple[str, str, str], operations: list[str]) -> Object:
        group, version, resource = what
        return {
            "name": name,
            "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle},
            "rules": [
                {
                    "operations": operations,
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "resources": [resource],
                    "scope": "*",
                }
            ],
            "failurePolicy": "Fail",
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        }

    validate = hook("validatejob.volcano.sh", "/jobs/validate", jobs, ["CREATE", "UPDATE"])
    queue = hook(
        "validatequeue.volcano.sh", "/queues/validate", queues, ["CREATE", "UPDATE", "DELETE"]
    )
    mutate = hook("mutatejob.volcano.sh", "/jobs/mutate", jobs, ["CREATE"])
    fill = hook("mutatequeue.volcano.sh", "/queues/mutate", queues, ["CREATE"])
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for resource, kind, hooks in (
        (_MUTATING, kinds[0], [mutate, fill]),
        (_VALIDATING, kinds[1], [validate, queue]),
    ):
        value = {
            "apiVersion": _CONFIGURATIONS,
            "kind": kind,
            "metadata": {"name": "volcano-admission"},
            "webhooks": hooks,
        }
        await client.delete(resource, "", "volcano-admission")
        await client.create(resource, "", value)


def _answer(review: Object, denial: str | None, patch: list[Object] | None = None) -> web.Response:
    response: Object = {"uid": review["request"]["uid"], "allowed": denial is None}
    if denial is not None:
        response["status"] = {"message": denial}
    if patch is not None:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return web.json_response(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )
