"""Jobs in the store that this version cannot read: what it can still do with them. No I/O.

A newer version may have accepted a job, and then been rolled back. Such a job is *parked*: it is
followed by what is known of it, ended when somebody asks or its time is over, and never made anew,
since what is not understood would be left out. The next version that can read it goes on with it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError

from controller.jobs.history.states import HOW_IT_ENDED, State
from controller.jobs.spec.accepted import filled_in, model_of, read_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import TAG, JobRejected
from controller.store.jobs.job_rows import Desired, JobRecord

_LONGEST_REASON: Final = 500
_MOST_ROUNDS: Final = 20
_STATES: Final = frozenset(State)
_DESIRED: Final = frozenset(get_args(Desired))
_NEEDED: Final = frozenset({"id", "owner"})


def why_parked(record: JobRecord) -> str | None:
    """Return why this version cannot go on with the job; None where it can."""
    if record.state not in _STATES:
        return f"its state {record.state!r} is not known to this version"[:_LONGEST_REASON]
    if record.desired not in _DESIRED:
        return f"{record.desired!r} is asked for, which this version does not know"
    if record.outcome is not None and record.outcome not in HOW_IT_ENDED:
        return f"its end {record.outcome!r} is not known to this version"[:_LONGEST_REASON]
    try:
        read_spec(record.spec, {})
    except JobRejected as rejected:
        return f"this version cannot read it: {rejected}"[:_LONGEST_REASON]
    return None


def read_known(record: JobRecord, secrets: Mapping[str, str] | None = None) -> Job:
    """Return what this version can read of the job: at least whose it is.

    For a job that is not parked, that is all of it.
    """
    return known_of(record.spec, record.id, record.owner_user, record.owner_project, secrets)


def known_of(
    spec: Any,
    job_id: str,
    user: str,
    project: str | None,
    secrets: Mapping[str, str] | None = None,
) -> Job:
    """Return what this version can read of *spec*."""
    try:
        return read_spec(spec, secrets or {})
    except JobRejected:
        pass
    owner = {"user": user} | ({"project": project} if project is not None else {})
    least: dict[str, Any] = {"id": job_id, "owner": owner, "image": "unknown"}
    left = copy.deepcopy(dict(spec)) if isinstance(spec, Mapping) else {}
    for _ in range(_MOST_ROUNDS):
        try:
            return model_of(job_id).model_validate(filled_in(left, secrets or {}) | {"id": job_id})
        except ValidationError as error:
            found = [(one["type"], one["loc"]) for one in error.errors(include_input=False)]
            if not _without(left, found):
                break
        except (AttributeError, TypeError, KeyError, ValueError):
            break
    return model_of(job_id).model_validate(least)


def _without(spec: dict[str, Any], found: list[tuple[str, tuple[int | str, ...]]]) -> bool:
    """Take what is unknown out of *spec*, else the whole field; say whether there was any."""
    changed = False
    for kind, where in found:
        path = [part for part in where if not (isinstance(part, str) and part.startswith(TAG))]
        if kind == "extra_forbidden" and _removed(spec, path):
            changed = True
        elif path and path[0] in spec and path[0] not in _NEEDED:
            del spec[str(path[0])]
            changed = True
    return changed


def _removed(spec: Any, path: list[int | str]) -> bool:
    *before, last = path or [""]
    for part in before:
        try:
            spec = spec[part]
        except (LookupError, TypeError):
            return False
    if isinstance(spec, dict) and last in spec:
        del spec[last]
        return True
    return False
