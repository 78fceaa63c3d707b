"""Decides how far a DELETE goes at once. No I/O."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from deploy.local.cluster.apiserver.errors import conflict
from deploy.local.cluster.apiserver.kinds import Kind, Object

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_POLICIES: Final = {"Background": None, "Foreground": FOREGROUND, "Orphan": ORPHAN}
_PRECONDITIONS: Final = (
    ("uid", "UID", "deleted and then recreated"),
    ("resourceVersion", "ResourceVersion", "modified"),
)
_FINISHED: Final = ("Succeeded", "Failed")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result: the object is *gone*, or kept as *value* until its deletion is confirmed."""

    gone: bool
    value: Object


def decide_deletion(kind: Kind, value: Object, wish: Object, now: datetime) -> Deletion:
    """Return the result of a DELETE with the options *wish* for *value*, which is changed.

    Raises:
        ApiError: 409 if a precondition does not hold.
    """
    metadata = value["metadata"]
    _check_preconditions(kind, metadata, wish.get("preconditions") or {})
    _set_propagation(metadata, wish)
    grace = _grace_seconds(kind, value, wish)
    waits = metadata.get("finalizers") or (value.get("spec") or {}).get("finalizers")
    if not grace and not waits:
        if kind.key == ("", "pods"):
            _set_end(metadata, grace, now)
        return Deletion(gone=True, value=value)
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    _set_end(metadata, grace, now)
    if kind.key == ("", "namespaces"):
        value["status"] = {**value.get("status", {}), "phase": "Terminating"}
    return Deletion(gone=False, value=value)


def _set_end(metadata: Object, grace: int, now: datetime) -> None:
    """Write the end of the grace period. A period that was set before can only be shortened.

    It began when the deletion was first requested (rest.BeforeDelete). So a deleted Pod shows when
    that was.
    """
    began = now
    if already := metadata.get("deletionTimestamp"):
        given = metadata.get("deletionGracePeriodSeconds", 0)
        if grace >= given:
            return
        began = datetime.strptime(already, _TIME).replace(tzinfo=UTC) - timedelta(seconds=given)
    metadata["deletionTimestamp"] = (began + timedelta(seconds=grace)).strftime(_TIME)
    metadata["deletionGracePeriodSeconds"] = grace


def _check_preconditions(kind: Kind, metadata: Object, wanted: Object) -> None:
    for field, label, since in _PRECONDITIONS:
        if wanted.get(field) not in (None, metadata[field]):
            # A real server names the kind here, not the resource.
            named = replace(kind, plural=kind.kind)
            raise conflict(
                named,
                metadata["name"],
                f"the {label} in the precondition ({wanted[field]}) does not match the {label} in "
                f"record ({metadata[field]}). The object might have been {since}",
            )


def _set_propagation(metadata: Object, wish: Object) -> None:
    policy = wish.get("propagationPolicy")
    if policy is None:
        policy = "Orphan" if wish.get("orphanDependents") else "Background"
    others = [f for f in metadata.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
    own = _POLICIES[policy]
    finalizers = [*others, own] if own else others
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _grace_seconds(kind: Kind, value: Object, wish: Object) -> int:
    """Return the kubelet's grace period: 0 for a Pod that has no node, or has ended."""
    if kind.key != ("", "pods"):
        return 0
    running = value["spec"].get("nodeName") and value["status"].get("phase") not in _FINISHED
    if not running:
        return 0
    asked = wish.get("gracePeriodSeconds")
    own = value["spec"].get("terminationGracePeriodSeconds", 30)
    if asked is None:
        return int(own)
    return 1 if asked < 0 else int(asked)  # a negative one means at once, but not by force
