"""Checks what hooks return and make: their type, and how much it is. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from controller.jobs.pipeline.border import BadResult
from controller.jobs.pipeline.builder import (
    Companion,
    CompanionKind,
    JobBuilder,
    SharedObject,
    complete_companions,
)
from controller.jobs.spec.problems import MOST_PROBLEMS, Problem
from controller.plain import plain_text
from controller.volcano.manifest import VolcanoJob
from controller.volcano.names import JOB_CONTAINER, volcano_job_name
from controller.volcano.preflight import findings

T = TypeVar("T")

LATEST: Final = 1e11
"""No time is later: some thousand years from now."""
MOST_OBJECTS: Final = 1000
MOST_BYTES: Final = 1_400_000
"""Of one object; etcd takes 1.5 MiB."""
LONGEST_PROBLEM: Final = 2000
SHAREABLE: Final = (
    *("Namespace", "NetworkPolicy", "PersistentVolumeClaim", "Queue"),
    *("ResourceQuota", "RoleBinding", "Secret"),
)
"""Kinds of shared objects, which the controller has rights to."""
_LONGEST_KIND: Final = 64
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[!-$&-.0-~]{1,253}", re.ASCII)


def nothing(_result: object) -> None:
    """Take whatever a hook returns that is asked for nothing."""


def due_time(result: object) -> float | None:
    """Return *result*, which must be unix seconds or None."""
    if result is None:
        return None
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise BadResult(f"returned {_kind(result)} instead of unix seconds or None")
    if not -LATEST <= result <= LATEST:  # NaN too
        raise BadResult("returned a time that is none")
    return float(result)


def due_times(known: Collection[str]) -> Callable[[object], dict[str, float | None]]:
    """Return what reads the times of the jobs *known*, and nothing else there may be."""

    def read(result: object) -> dict[str, float | None]:
        if not isinstance(result, Mapping):
            raise BadResult(f"returned {_kind(result)} instead of a mapping of times by job")
        return {job_id: due_time(result[job_id]) for job_id in known if job_id in result}

    return read


def check_builder(builder: JobBuilder) -> None:
    """Check what a plugin has left of *builder*: that the next one can go on with it.

    Raises:
        BadResult: If it cannot, or it is too much.
    """
    if not isinstance(builder.volcano_job, VolcanoJob):
        raise BadResult("made something else of the VolcanoJob")
    if builder.volcano_job.name != volcano_job_name(builder.job.id):
        raise BadResult("renamed the VolcanoJob, by whose name it is found")
    if builder.accepted_in not in (None, builder.volcano_job.namespace):
        raise BadResult("moved the VolcanoJob out of the namespace in which it was accepted")
    _check_list(builder.companions, Companion)
    _check_list(builder.shared, SharedObject)
    _check_list(builder.waiting, str)
    checked_problems(builder.problems)
    _check_size("the VolcanoJob", builder.volcano_job.manifest())
    # What it finds is told once all plugins have had their turn; what it cannot read, this one did.
    findings(builder.volcano_job)
    for companion in builder.companions:
        what = _check_object(companion)
        if companion.when not in ("before", "after"):
            raise BadResult(f"made {what} neither before nor after the VolcanoJob")
    for shared in builder.shared:
        what = _check_object(shared)
        if shared.kind not in SHAREABLE:
            raise BadResult(f"made {what} to be shared, which is none of {', '.join(SHAREABLE)}")
        _check_texts(what, {"labels": shared.labels, "annotations": shared.annotations})


def _check_object(made: Companion | SharedObject) -> str:
    """Check what everything that is made must have; return what it is called in errors.

    Of a name that is what the API server demands of any kind's (Kubernetes, "Object Names and IDs",
    "Path Segment Names").
    """
    if not isinstance(made.kind, str) or not made.kind:
        raise BadResult("made an object of no kind")
    kind = made.kind[:_LONGEST_KIND]
    if not isinstance(made.name, str) or not _NAME.fullmatch(made.name):
        raise BadResult(f"made a {kind} whose name cannot be {made.name!r}"[:200])
    what = f"the {kind} {made.name}"[:200]
    if not isinstance(made.manifest, dict):
        raise BadResult(f"made {what} of what is no object")
    metadata = made.manifest.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise BadResult(f"made {what} with metadata that are no object")
    _check_texts(what, metadata or {})
    _check_size(what, made.manifest)
    return what


def _check_texts(what: str, given: Mapping[str, object]) -> None:
    for name in ("labels", "annotations"):
        texts = given.get(name)
        if texts is None:
            continue
        members = [*texts, *texts.values()] if isinstance(texts, dict) else [texts]
        if not isinstance(texts, dict) or not all(isinstance(one, str) for one in members):
            raise BadResult(f"made {what} with {name} that are no texts by names")


def tasks_of_job(builder: JobBuilder) -> set[str]:
    """Return the tasks that have a container in which the job's program runs."""
    return {
        task.name
        for task in builder.volcano_job.tasks
        if any(one.name == JOB_CONTAINER for one in task.template.containers)
    }


def check_kinds(made: Sequence[Companion], kinds: Sequence[CompanionKind]) -> dict[int, Companion]:
    """Return the companions of declared *kinds* as they are kept, by their identity.

    Raises:
        BadResult: If one is of another kind.
    """
    try:
        return complete_companions(made, kinds)
    except LookupError as error:
        raise BadResult(str(error.args[0])) from error


def checked_problems(problems: object) -> list[Problem]:
    """Return *problems*, cut to what can be answered.

    Raises:
        BadResult: If these are no problems.
    """
    kept = _check_list(problems, Problem)[:MOST_PROBLEMS]
    if not all(isinstance(one.path, str) and isinstance(one.message, str) for one in kept):
        raise BadResult("refused the job with what is no text")
    return [
        Problem(plain_text(one.path, LONGEST_PROBLEM), plain_text(one.message, LONGEST_PROBLEM))
        for one in kept
    ]


def _check_list(given: object, kind: type[T]) -> list[T]:
    if not isinstance(given, list | tuple) or len(given) > MOST_OBJECTS:
        raise BadResult(f"left no list of at most {MOST_OBJECTS} of {kind.__name__}")
    kept = [one for one in given if isinstance(one, kind)]
    if len(kept) < len(given):
        wrong = next(one for one in given if not isinstance(one, kind))
        raise BadResult(f"left {_kind(wrong)} where a {kind.__name__} should be")
    return kept


def _check_size(what: str, manifest: object) -> None:
    try:
        size = len(json.dumps(manifest, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"made {what} of what is no JSON") from error
    if size > MOST_BYTES:
        raise BadResult(f"made {what} larger than the cluster takes")


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"[:80]
