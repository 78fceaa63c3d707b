"""When a job is looked at again, and why."""

from __future__ import annotations

from dataclasses import dataclass

from controller.jobs.reconcile.workqueue import Reason
from shared.errors import FumaroleError


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job is looked at again ``after`` so many seconds."""

    after: float
    reason: Reason


class RequeueAfter(FumaroleError):
    """The step cannot be done yet, and that is no failure: look again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"look again in {seconds} s")
        self.seconds = seconds
