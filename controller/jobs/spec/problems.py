"""Problems of a request, each with its path.

Paths are written as in ``items[0].resources.cpu``; a name that is no identifier is quoted, as in
``labels["a.b"]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from shared.errors import FumaroleError

TAG: Final = "~"
"""Prefix of the names of union members, which pydantic puts into locations; they are no fields."""

MOST_PROBLEMS: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_LONGEST_NAME: Final = 64
_OF_A_NAME: Final = "[key]"  # pydantic's mark for a wrong name of a member


Found = tuple[str, str]
"""A path within the job, and the problem there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, and its path."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def under(self, prefix: str) -> Problem:
        """Return the problem with *prefix* before its path."""
        if not self.path or self.path.startswith("["):
            return Problem(prefix + self.path, self.message)
        return Problem(f"{prefix}.{self.path}" if prefix else self.path, self.message)


class JobRejected(FumaroleError):
    """A job cannot be run as requested; has all problems at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def make_path(parts: Sequence[str | int]) -> str:
    """Return the path through these names and indexes."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _PLAIN.fullmatch(part) and len(part) <= _LONGEST_NAME:
            path += f".{part}" if path else part
        else:
            path += f"[{json.dumps(part[:_LONGEST_NAME])}]"
    return path


def problems_of(error: ValidationError) -> list[Problem]:
    """Return the problems that pydantic found, without input values, which may be secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_problem(one["type"], one["loc"], one["msg"]) for one in found[:MOST_PROBLEMS]]


def _problem(kind: str, location: tuple[str | int, ...], message: str) -> Problem:
    names = [part for part in location if not (isinstance(part, str) and part.startswith(TAG))]
    is_name = names[-1:] == [_OF_A_NAME]
    if is_name:
        names.pop()
    return Problem(make_path(names), ("its name: " if is_name else "") + _worded(kind, message))


def _worded(kind: str, message: str) -> str:
    match kind:
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "is missing"
        case "model_type" | "dict_type":
            return "should be an object"
        case "list_type":
            return "should be an array"
        case _:
            return message.removeprefix("Value error, ")
