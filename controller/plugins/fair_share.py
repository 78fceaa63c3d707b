"""Separates owners: a namespace and a Volcano queue for each project, or user without one.

Volcano shares resources between queues. (It dropped the share between namespaces in 1.8.)

An owner's name is any text of up to 255 characters, but a namespace's name is a DNS label of 63. So
the name has a readable part, which is not significant, and 100 bits of SHA-256 over instance, kind
and name. An annotation of the object has the owner's full name, and is compared before the object
is used: two owners never share one, not even with the same hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder, SharedObject
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.pipeline.role_bindings import role_bindings
from controller.jobs.spec.model import Job, OwnerKey, owner_key
from controller.site.owner_shares import ClaimTemplate, FairShare

OWNER_ANNOTATION: Final = "fumarole.dev/owner"
OWNER_LABEL: Final = "fumarole.dev/owner"

_HASH_LENGTH: Final = 20
_LONGEST_NAME: Final = 63
_LETTER: Final = {"user": "u", "project": "p"}
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_NAME: Final = "fumarole"
_DENY: Final = "fumarole.default-deny"


class FairSharePlugin(JobPlugin):
    """Places the job in its owner's namespace and queue, and adds the required objects there.

    None of these objects is deleted with a job. A job that was accepted before its owner had a
    namespace stays where it was accepted.
    """

    name: ClassVar[str] = "fair_share"
    # The task plugin names the queue, which this plugin may replace.
    after: ClassVar[tuple[str, ...]] = ("task",)
    # The policy of connect_to_job names the namespace.
    before: ClassVar[tuple[str, ...]] = ("connect_to_job",)

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Place the job."""
        share = self.context.jobs.fair_share
        if share is None:
            return
        owner = owner_key(job.owner)
        name = owned_name(owner, instance=self.context.instance, prefix=share.prefix)
        if builder.accepted_in not in (None, name):
            return
        if not builder.submitted and not _may_name(job.queue, name, share):
            builder.refuse("queue", "is not a queue that its owner may use")
        volcano_job = builder.volcano_job
        volcano_job.namespace = name
        builder.shared.extend(_prerequisites(owner, name, share, instance=self.context.instance))
        if job.queue in (None, name):
            # Operators create any other queue that a job names.
            volcano_job.queue = name
            builder.shared.append(_queue(owner, name, share, instance=self.context.instance))


def owner_hash(owner: OwnerKey, *, instance: str) -> str:
    """Return the hash that identifies the owner's objects: a part of a DNS label."""
    # JSON: no two triples have the same text, whatever characters the names contain.
    text = json.dumps([instance, owner.kind, owner.name]).encode()
    return base64.b32encode(hashlib.sha256(text).digest()).decode().lower()[:_HASH_LENGTH]


def owned_name(owner: OwnerKey, *, instance: str, prefix: str) -> str:
    """Return the name of the owner's namespace and queue: a DNS label."""
    ending = owner_hash(owner, instance=instance)
    beginning = f"{prefix}-{_LETTER[owner.kind]}"
    room = _LONGEST_NAME - len(beginning) - len(ending) - 2
    readable = _OTHER.sub("-", owner.name.lower())[:room].strip("-")
    return "-".join(part for part in (beginning, readable, ending) if part)


def _may_name(queue: str | None, own: str, share: FairShare) -> bool:
    granted = share.owners.queues
    return queue in (None, own) or granted is None or queue in granted


def _prerequisites(
    owner: OwnerKey, name: str, share: FairShare, *, instance: str
) -> Iterator[SharedObject]:
    """Yield the namespace and the objects in it, in the order of their creation."""
    yield _namespace(owner, name, share, instance=instance)
    # The permission to create the other objects comes first.
    yield from role_bindings(share.grants, name)
    yield SharedObject(
        kind="NetworkPolicy",
        name=_DENY,
        namespace=name,
        # The policies of each job add the job's own egress and ingress.
        manifest={"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
    )
    if share.owners.quota:
        amounts = {resource: str(amount) for resource, amount in share.owners.quota.items()}
        quota = {"spec": {"hard": amounts}}
        yield SharedObject(kind="ResourceQuota", name=_NAME, namespace=name, manifest=quota)
    for secret, configuration in share.pull_secrets.items():
        content = {
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": configuration},
        }
        yield SharedObject(kind="Secret", name=secret, namespace=name, manifest=content)
    for claim in share.owners.claims:
        yield _claim(claim, name, owner_hash(owner, instance=instance))


def _namespace(owner: OwnerKey, name: str, share: FairShare, *, instance: str) -> SharedObject:
    level = share.owners.pod_security
    security = {
        f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")
    }
    return SharedObject(
        kind="Namespace",
        name=name,
        labels={
            **share.owners.labels,
            **security,
            OWNER_LABEL: owner_hash(owner, instance=instance),
        },
        annotations={OWNER_ANNOTATION: owner.encode()},
        kept=True,
    )


def _queue(owner: OwnerKey, name: str, share: FairShare, *, instance: str) -> SharedObject:
    wanted = share.owners.queue
    spec: dict[str, Any] = {"weight": wanted.weight, "reclaimable": True}
    if wanted.capability:
        spec["capability"] = {what: str(amount) for what, amount in wanted.capability.items()}
    return SharedObject(
        kind="Queue",
        name=name,
        manifest={"spec": spec},
        labels={OWNER_LABEL: owner_hash(owner, instance=instance)},
        annotations={OWNER_ANNOTATION: owner.encode()},
        # An operator may change the quota of a single owner.
        kept=True,
    )


def _claim(claim: ClaimTemplate, namespace: str, owner: str) -> SharedObject:
    spec: dict[str, Any] = {
        "accessModes": list(claim.access_modes),
        "resources": {"requests": {"storage": str(claim.size)}},
    }
    if claim.storage_class is not None:
        spec["storageClassName"] = claim.storage_class
    if claim.volume is not None:
        spec["volumeName"] = claim.volume.replace("{namespace}", namespace).replace(
            "{owner}", owner
        )
    return SharedObject(
        kind="PersistentVolumeClaim",
        name=claim.name,
        namespace=namespace,
        manifest={"spec": spec},
        # The spec of a bound claim is immutable.
        kept=True,
    )
