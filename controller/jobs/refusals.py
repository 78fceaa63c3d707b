"""What an API server's refusal of a VolcanoJob says about the job, before it is accepted. No I/O.

Only what is wrong with the job itself refuses it. What is still to be made (its namespace, our
rights there, its queue) and what passes (a server that is away or busy) says nothing about it.
"""

from __future__ import annotations

import re
from typing import Final

from controller.jobs.model import Job
from controller.jobs.origins import problems_with
from controller.jobs.problems import Problem
from controller.kube.errors import KubeError
from controller.volcano.denials import findings_of

# 413: larger than a server reads.
_OF_THE_OBJECT: Final = frozenset({400, 413, 422})
_DENIED: Final = re.compile(
    r"admission webhook \S+ denied the request"
    # Kubernetes' own policies: ValidatingAdmissionPolicy, with the code that they name.
    r"|denied request: "
    # RBAC answers 403 too, with "User … cannot create": that is ours to wait for.
    r"|is forbidden: (?:exceeded|failed) quota: "
)
# Webhooks are anybody's, and say as much as they like.
_MOST_PROBLEMS: Final = 100
_LONGEST_TEXT: Final = 2000
_NO_DRY_RUN: Final = "does not support dry run"
# Volcano's webhook, of a queue. One that is closed may open again; none of our own may be made yet.
_NOT_YET: Final = re.compile(r"to queue with state|failed to get list queues")
_NO_QUEUE: Final = "unable to find job queue"


def lacks_dry_run(refusal: KubeError) -> bool:
    """Say whether a webhook keeps the server from making dry runs of anything like this.

    ``admissionregistration.k8s.io/v1`` takes only webhooks without side effects; older ones may
    be there still.
    """
    return refusal.status == 400 and _NO_DRY_RUN in refusal.message


def problems_in(refusal: KubeError, job: Job) -> list[Problem]:
    """Return what is wrong with *job*; nothing where that is not what the refusal is about."""
    if not _is_about_the_job(refusal):
        return []
    found = findings_of(refusal.message, refusal.details)
    kept = [(path, text[:_LONGEST_TEXT]) for path, text in found if not _may_pass(text, job)]
    return problems_with(job, kept[:_MOST_PROBLEMS])


def _is_about_the_job(refusal: KubeError) -> bool:
    if lacks_dry_run(refusal):
        return False
    if refusal.status in _OF_THE_OBJECT:
        return True
    # Admission gives any code; 429 and those of a server's fault say *later*.
    is_final = 400 <= refusal.status < 500 and refusal.status != 429
    return is_final and _DENIED.search(refusal.message) is not None


def _may_pass(text: str, job: Job) -> bool:
    if _NO_QUEUE in text:
        # One that the job names is made by operators, before anybody names it.
        return job.queue is None
    return _NOT_YET.search(text) is not None
