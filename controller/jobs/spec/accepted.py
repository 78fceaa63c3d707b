"""A job as it is kept: what was accepted, and its secrets apart from it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from controller.jobs.spec.model import Job, ToolJob
from controller.jobs.spec.parameters import SECRET_FIELDS
from controller.jobs.spec.problems import JobRejected, Problem, problems_of
from controller.volcano.names import is_tool
from controller.volcano.policies import RESTARTS

_UNKNOWN: Final = "(unknown)"


def public_spec(job: Job) -> dict[str, Any]:
    """Return the job as JSON without the values of its secrets, and without defaults.

    Two jobs that say the same have the same spec, however they said it.
    """
    spec = job.model_dump(mode="json", exclude_defaults=True)
    for name in job.secrets():
        _withhold(spec["parameters"][name])
    return spec


def is_as_asked(spec: Mapping[str, Any], asked: Job) -> bool:
    """Say whether *spec* is what is kept of *asked*, whatever was filled in then."""
    said = public_spec(asked)
    # What a newer version has kept may be anything.
    if said == spec or not isinstance(spec, Mapping) or "filled" not in spec:
        return said == spec
    left = copy.deepcopy({name: value for name, value in spec.items() if name != "filled"})
    for path in spec["filled"]:
        *outer, name = path.split(".")
        fields: Any = left
        for one in outer:
            fields = fields.get(one) if isinstance(fields, dict) else None
        if isinstance(fields, dict):
            fields.pop(name, None)
    if not left.get("parameters"):
        left.pop("parameters", None)
    return said == left


def read_spec(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> Job:
    """Return the job that :func:`public_spec` made *spec* of.

    Where a secret is not among *secrets* its value is a word of ours: such a job can be looked
    at, not submitted (see :func:`lacks_secrets`).

    Raises:
        JobRejected: If it was changed, or made by a version that took more.
    """
    try:
        return model_of(spec["id"]).model_validate(filled_in(spec, secrets))
    except ValidationError as error:
        raise JobRejected(problems_of(error)) from None
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise JobRejected([Problem("", "is not what a job is kept as")]) from error


def model_of(job_id: str) -> type[Job]:
    """Return the model of what has this identifier: a job's, or that of a tool's run."""
    return ToolJob if is_tool(job_id) else Job


def filled_in(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return *spec* with the values of its secrets, or words of ours where they are not known."""
    parameters = {
        name: _with_value(name, given, secrets)
        for name, given in (spec.get("parameters") or {}).items()
    }
    return {**spec, "parameters": parameters} if parameters else dict(spec)


def lacks_secrets(spec: Mapping[str, Any], secrets: Mapping[str, str]) -> bool:
    """Say whether the job has a secret parameter whose value is not among *secrets*."""
    return any(
        _is_withheld(given) and name not in secrets
        for name, given in (spec.get("parameters") or {}).items()
    )


def has_delayed(spec: Mapping[str, Any]) -> bool:
    """Say whether a policy of the job has a timeout; it costs little to ask."""
    return _has_policy(spec, lambda policy: bool(policy.get("timeout_seconds")))


def may_restart(spec: Mapping[str, Any]) -> bool:
    """Say whether a policy of the job starts anything again; it costs little to ask."""
    return _has_policy(spec, lambda policy: policy.get("action") in RESTARTS)


def _has_policy(spec: Mapping[str, Any], wanted: Callable[[Mapping[str, Any]], bool]) -> bool:
    try:
        lists = [spec.get("policies")]
        lists += [task.get("policies") for task in spec.get("tasks") or ()]
        return any(wanted(policy) for policies in lists for policy in policies or ())
    except (AttributeError, TypeError):
        return False  # of a version that keeps jobs in another way


def _withhold(given: dict[str, Any]) -> None:
    if given["type"] == "secret":
        del given["value"]
    else:
        # A licence may do without a key, and then does not say it: null says that there is one.
        given["key"] = None


def _is_withheld(given: Any) -> bool:
    if not isinstance(given, dict):
        return False
    return given.get("type") == "secret" or (given.get("type") == "licence" and "key" in given)


def _with_value(name: str, given: Any, secrets: Mapping[str, str]) -> Any:
    if not _is_withheld(given):
        return given
    field = SECRET_FIELDS[given["type"]]
    return {**given, field: secrets.get(name, _UNKNOWN)}
