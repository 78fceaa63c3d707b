"""How far a DELETE goes at once: a decision without I/O."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from deploy.local.cluster.apiserver.errors import bad_request, conflict
from deploy.local.cluster.apiserver.kinds import Kind, Object

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_POLICIES: Final = {"Background": None, "Foreground": FOREGROUND, "Orphan": ORPHAN}
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Deletion:
    """What becomes of the object: *gone*, or kept as *value* until somebody confirms."""

    gone: bool
    value: Object


def decide_deletion(kind: Kind, value: Object, wish: Object, now: datetime) -> Deletion:
    """Return what a DELETE with the options *wish* does to *value*, which is changed.

    Raises:
        ApiError: 409 if a precondition does not hold, 400 for an unknown propagation policy.
    """
    metadata = value["metadata"]
    _check_preconditions(kind, metadata, wish.get("preconditions") or {})
    _set_propagation(metadata, wish)
    grace = _grace_seconds(kind, value, wish)
    waits = metadata.get("finalizers") or (value.get("spec") or {}).get("finalizers")
    if not grace and not waits:
        return Deletion(gone=True, value=value)
    already = metadata.get("deletionTimestamp")
    if not already and metadata.get("generation"):
        metadata["generation"] += 1
    if not already or grace < metadata.get("deletionGracePeriodSeconds", 0):
        moment = now + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
    if kind.key == ("", "namespaces"):
        value["status"] = {**value.get("status", {}), "phase": "Terminating"}
    return Deletion(gone=False, value=value)


def _check_preconditions(kind: Kind, metadata: Object, wanted: Object) -> None:
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) not in (None, metadata[field]):
            raise conflict(
                kind,
                metadata["name"],
                f"Precondition failed: {label} in precondition: {wanted[field]}, {label} in "
                f"object meta: {metadata[field]}",
            )


def _set_propagation(metadata: Object, wish: Object) -> None:
    policy = wish.get("propagationPolicy")
    if policy is None:
        policy = "Orphan" if wish.get("orphanDependents") else "Background"
    if policy not in _POLICIES:
        raise bad_request(f'invalid propagationPolicy: "{policy}"')
    others = [f for f in metadata.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
    own = _POLICIES[policy]
    finalizers = [*others, own] if own else others
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _grace_seconds(kind: Kind, value: Object, wish: Object) -> int:
    """Return how long the kubelet has: none for a Pod that has none, or has ended."""
    if kind.key != ("", "pods"):
        return 0
    running = value["spec"].get("nodeName") and value["status"].get("phase") not in _FINISHED
    if not running:
        return 0
    asked = wish.get("gracePeriodSeconds")
    own = value["spec"].get("terminationGracePeriodSeconds", 30)
    return int(own if asked is None else max(asked, 0))
