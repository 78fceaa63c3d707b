"""Tests predecessors of jobs: they exist, have the same owner, and form no cycle."""

from __future__ import annotations

from typing import Any

from controller.jobs.spec.model import Job, OwnerKey, owner_key
from controller.jobs.submission.reservations import predecessor_problems
from tests.controller.samples import make_job


def refused(known: dict[str, OwnerKey] | None = None, **after: Any) -> dict[str, list[str]]:
    jobs: dict[str, Job] = {
        id_: make_job(id=id_, after=list(those)) for id_, those in after.items()
    }
    found = predecessor_problems(jobs, known or {})
    return {id_: [one.path for one in problems] for id_, problems in found.items()}


def test_jobs_of_one_call_may_depend_on_each_other_in_any_order() -> None:
    assert refused(c="b", b="a", a="", d="abc") == {}


def test_an_unknown_predecessor_refuses_its_followers() -> None:
    assert refused(a=["nobody"], b="a", c="", d="cb") == {
        "a": ["after[0]"],
        "b": ["after[0]"],
        "d": ["after[1]"],
    }


def test_a_dependency_cycle_is_refused_with_only_its_followers() -> None:
    assert refused(a="c", b="a", c="b", d="c", e="", f="e", g="g") == {
        name: ["after"] for name in "abcdg"
    }


def test_another_owners_job_is_reported_as_unknown() -> None:
    mine, others = owner_key(make_job().owner), OwnerKey("user", "eve")
    assert refused({"x": mine, "y": others}, a="xy") == {"a": ["after[1]"]}


def test_a_long_chain_is_checked_in_linear_time() -> None:
    chain: dict[str, Any] = {f"j{n}": [f"j{n - 1}"] if n else ["nobody"] for n in range(1000)}
    assert len(refused(**chain)) == 1000
