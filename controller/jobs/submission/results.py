"""What became of the jobs of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controller.jobs.spec.problems import Problem

Mode = Literal["atomic", "best_effort"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one job.

    ``unchanged``: it was there already, exactly like this. ``conflict``: one of this id is there
    and is another, or somebody else has what it claims (then ``problems`` say what). ``rejected``:
    it cannot be run as it was asked for.
    """

    id: str | None
    result: Literal["created", "unchanged", "conflict", "rejected"]
    problems: tuple[Problem, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the job runs or will."""
        return self.result in ("created", "unchanged")
