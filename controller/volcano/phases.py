"""Volcano's phases, and what each means for a job."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Progress(Enum):
    """How far a VolcanoJob is, as far as a job is concerned."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    """Its pods are being ended; how it ends is decided, but not yet over."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended by a command of somebody else's; Volcano never removes an aborted one."""


PROGRESS: Final[dict[str, Progress]] = {
    # The first event of a new VolcanoJob has no status at all.
    "": Progress.WAITING,
    "Pending": Progress.WAITING,
    "Restarting": Progress.WAITING,
    "Running": Progress.RUNNING,
    "Aborting": Progress.ENDING,
    "Completing": Progress.ENDING,
    "Terminating": Progress.ENDING,
    "Aborted": Progress.STOPPED,
    "Terminated": Progress.STOPPED,
    "Completed": Progress.SUCCEEDED,
    "Failed": Progress.FAILED,
}


def progress_of(phase: str) -> Progress:
    """Return what *phase* means; a phase that a later Volcano adds is taken for waiting.

    Waiting is what changes nothing: no job is started or ended because of a word that this code
    does not know.
    """
    return PROGRESS.get(phase, Progress.WAITING)
