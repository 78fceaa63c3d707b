"""What an API server's refusal of a VolcanoJob says about the job, before it is accepted. No I/O.

Only what is wrong with the job itself refuses it. What is still to be made (its namespace, our
rights there, its queue) and what passes (a server that is away or busy) says nothing about it.
"""

from __future__ import annotations

from typing import Final

from controller.jobs.cluster.verdicts import QUEUE_NOT_OPEN, QUEUE_UNSEEN, row_of, verdict_on
from controller.jobs.spec.model import Job
from controller.jobs.spec.origins import problems_with
from controller.jobs.spec.problems import Problem
from controller.kube.errors import KubeError
from controller.volcano.reasons.denials import findings_of

# Webhooks are anybody's, and say as much as they like.
_MOST_PROBLEMS: Final = 100
_LONGEST_TEXT: Final = 2000


def lacks_dry_run(refusal: KubeError) -> bool:
    """Say whether a webhook keeps the server from making dry runs of anything like this.

    ``admissionregistration.k8s.io/v1`` takes only webhooks without side effects; older ones may
    be there still.
    """
    return row_of(refusal).name == "no dry run"


def problems_in(refusal: KubeError, job: Job) -> list[Problem]:
    """Return what is wrong with *job*; nothing where that is not what the refusal is about."""
    if verdict_on(refusal, "dry_run") != "final":
        return []
    found = findings_of(refusal.message, refusal.details)
    kept = [(path, text[:_LONGEST_TEXT]) for path, text in found if not _may_pass(text, job)]
    return problems_with(job, kept[:_MOST_PROBLEMS])


def _may_pass(text: str, job: Job) -> bool:
    if QUEUE_UNSEEN in text:
        # One that the job names is made by operators, before anybody names it.
        return job.queue is None
    return QUEUE_NOT_OPEN.search(text) is not None
