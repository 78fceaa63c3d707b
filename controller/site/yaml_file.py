"""Reads a file that operators write in YAML or JSON; every problem is reported with its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from controller.jobs.spec.problems import problems_of

Declared = TypeVar("Declared", bound=BaseModel)


def read_declared(path: Path, model: type[Declared], *, quoted: bool = True) -> Declared:
    """Return the *model* in the file at *path*; raises as the two functions below."""
    return validated(read_yaml(path, quoted=quoted), model)


def read_yaml(path: Path, *, quoted: bool = True) -> Any:
    """Return the content of the file at *path*; an empty file is an empty object.

    Raises:
        ValueError: If it cannot be read, or is not YAML; if *quoted*, with the text at the error.
    """
    try:
        given = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark else ""
        cause = str(getattr(error, "problem", "") or "") if quoted else ""
        said = ": ".join(part for part in ("is not YAML", place, cause) if part)
        raise ValueError(said) from None
    return {} if given is None else given


def validated(given: Any, model: type[Declared]) -> Declared:
    """Return *given* as a *model*.

    Raises:
        ValueError: With every problem.
    """
    if not isinstance(given, dict):
        raise ValueError(f"must hold fields and their values ({', '.join(model.model_fields)})")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = "; ".join(f"{one.path}: {one.message}" for one in problems_of(error))
        raise ValueError(found) from None
