"""The options of a write: from its query, and from the body of a DELETE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deploy.local.cluster.apiserver.errors import Problem, bad_request, invalid_options
from deploy.local.cluster.apiserver.kinds import Object

_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_INTERNAL: Final = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a write: *strict* refuses fields that the kind does not have."""

    dry_run: bool = False
    strict: bool = False


def write_options(query: Mapping[str, str], kind: str) -> Options:
    """Return the options in the query; *kind* is their kind, such as ``CreateOptions``.

    Raises:
        ApiError: 422 for unknown values.
    """
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        problem = Problem.unsupported("fieldValidation", validation, _VALIDATIONS)
        raise invalid_options(kind, problem)
    dry_run = query.get("dryRun", "")
    _check_dry_run(kind, [dry_run] if dry_run else [])
    return Options(dry_run=bool(dry_run), strict=validation == "Strict")


def delete_wish(query: Mapping[str, str], body: Object) -> Object:
    """Return the DeleteOptions of a request: those of the body, else those of the query.

    Raises:
        ApiError: 400 for a body that is no DeleteOptions, 422 for invalid values.
    """
    wish: Object = {name: query[name] for name in ("propagationPolicy",) if name in query}
    if "gracePeriodSeconds" in query:
        text = query["gracePeriodSeconds"]
        try:
            wish["gracePeriodSeconds"] = int(text)
        except ValueError as error:
            why = f'strconv.ParseInt: parsing "{text}": invalid syntax'
            raise bad_request(why) from error
    if query.get("dryRun"):
        wish["dryRun"] = [query["dryRun"]]
    wish |= {name: value for name, value in body.items() if value is not None}
    _check_wish(wish)
    return wish


def _check_wish(wish: Object) -> None:
    if wish.get("kind", "DeleteOptions") != "DeleteOptions":
        version = wish.get("apiVersion", "")
        raise bad_request(
            f'no kind "{wish["kind"]}" is registered for version "{version}" in scheme '
            f'"{_INTERNAL}"'
        )
    grace = wish.get("gracePeriodSeconds", 0)
    if not isinstance(grace, int) or isinstance(grace, bool):
        raise bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds "
            "of type int64"
        )
    policy = wish.get("propagationPolicy")
    if policy is not None and wish.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", Problem.invalid("propagationPolicy", policy, why))
    if policy not in (None, *_POLICIES):
        problem = Problem.unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise invalid_options("DeleteOptions", problem)
    _check_dry_run("DeleteOptions", wish.get("dryRun") or [])


def _check_dry_run(kind: str, stages: object) -> None:
    if not isinstance(stages, list) or set(stages) - {"All"}:
        raise invalid_options(kind, Problem.unsupported("dryRun", stages, ["All"]))
