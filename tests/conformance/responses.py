"""The responses of real servers, row by row; a case names its row.

The refusals were recorded with ``kubernetes_asyncio`` 36.1.0 on the versions below. A case without
a row here states the recorded response in its own assertions.
"""

from dataclasses import dataclass
from typing import Final

KUBERNETES: Final = "kube-apiserver 1.36.2"
VOLCANO: Final = "Volcano 1.15.1 and 1.16-alpha"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A Status: its code, its reason (empty if absent), and words of its message."""

    seen_on: str
    code: int
    reason: str
    says: str = ""


def _kube(code: int, reason: str, says: str = "") -> Refusal:
    return Refusal(KUBERNETES, code, reason, says)


def _volcano(says: str) -> Refusal:
    text = f'admission webhook "validatejob.volcano.sh" denied the request: {says}'
    return Refusal(VOLCANO, 400, "", text)  # no reason: a webhook's denial has a code alone


REFUSALS: Final = {
    "create in a missing namespace": _kube(404, "NotFound", 'namespaces "{name}" not found'),
    "create a duplicate": _kube(409, "AlreadyExists", "already exists"),
    "create without containers": _kube(422, "Invalid", "spec.containers: Required value"),
    "create with a bad name": _kube(422, "Invalid", "metadata.name: Invalid value"),
    "create with a bad label": _kube(422, "Invalid", "metadata.labels: Invalid value"),
    "create with a wrong type": _kube(400, "BadRequest", "cannot be handled as a"),
    "get what is missing": _kube(404, "NotFound", "not found"),
    "a bad continue token": _kube(400, "BadRequest", "continue"),
    "a bad label selector": _kube(400, "BadRequest", "unable to parse"),
    "an unsupported field selector": _kube(400, "BadRequest", "field label not supported"),
    "PUT with a stale resourceVersion": _kube(409, "Conflict", "the object has been modified"),
    "merge patch with a stale resourceVersion": _kube(409, "Conflict", "has been modified"),
    "JSON patch whose test fails": _kube(422, "Invalid"),
    "change an immutable pod field": _kube(422, "Invalid", "pod updates may not change fields"),
    "strict validation of an unknown field": _kube(400, "BadRequest", "unknown field"),
    "watch from a revision that is too old": _kube(410, "Expired", "too old resource version"),
    "add a finalizer while deleting": _kube(422, "Invalid", "no new finalizers can be added"),
    "delete with another uid": _kube(409, "Conflict", "does not match the UID in record"),
    "change an immutable Secret": _kube(422, "Invalid", "field is immutable"),
    "exec in an unscheduled pod": _kube(400, "BadRequest", "does not have a host assigned"),
    "a log of a wrong container": _kube(400, "BadRequest", "container other is not valid for pod"),
    "strategic merge patch of a custom resource": _kube(415, "UnsupportedMediaType"),
    "a custom resource that breaks its schema": _kube(
        422, "Invalid", "should have at least 1 items"
    ),
    "no token": _kube(403, "Forbidden", 'User "system:anonymous" cannot list'),
    "no token, where nobody is anonymous": _kube(401, "Unauthorized", "Unauthorized"),
    "a bad token": _kube(401, "Unauthorized", "Unauthorized"),
    "a token without the right": _kube(403, "Forbidden", "cannot list resource"),
    "create in a namespace that goes": _kube(403, "Forbidden", "is being terminated"),
    "a pod without its ServiceAccount": _kube(403, "Forbidden", "error looking up service account"),
    # Before 1.14 the schema requires no task, so the refusal comes from the webhook's source.
    "a job without tasks, before 1.14": _volcano("No task specified in job spec"),
    "a job with a doubled task name": _volcano("duplicated task name"),
    "a job for an unknown queue": _volcano("unable to find job queue"),
    "a job with minAvailable above its replicas": _volcano("job 'minAvailable' should not be"),
    "a job whose pod names are too long": _volcano("create pod with name"),
    "a job without containers": _volcano("spec.task[0].template.spec.containers: Required value"),
    "another image in a running job": _volcano("job updates may not change fields"),
}
