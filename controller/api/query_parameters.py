"""Reads query parameters: those that are known, each once, and of their types."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeVar, get_origin

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from controller.api.error_responses import invalid
from controller.jobs.spec.problems import Problem, problems_of
from controller.store.paging import Key
from shared.numbers import whole_number

DEFAULT_LIMIT = 100
MOST_LIMIT = 1000
SECONDS: Final = r"^[0-9]{1,12}(\.[0-9]{1,15})?$"
EVENT_NUMBER: Final = "^([0-9]{1,18})?$"
"""Of the updates; what ``Last-Event-ID`` is."""


def _whole(raw: object) -> int:
    number = whole_number(raw) if isinstance(raw, str) else None
    if number is None:
        raise ValueError("should be a number, in decimal digits")
    return number


def _seconds(raw: object) -> float:
    if not isinstance(raw, str) or not re.fullmatch(SECONDS, raw):
        raise ValueError("should be unix seconds, in decimal digits")
    return float(raw)


# Outermost, or the description would not tell the bounds within.
WHOLE: Final = BeforeValidator(_whole)
Number = Annotated[int, Field(ge=0, le=2**63 - 1), WHOLE]
Limit = Annotated[int, Field(ge=1, le=MOST_LIMIT), WHOLE]

# Told, and not checked: NUL is refused with 400, and a name that is unknown finds nothing.
Word = Annotated[str, Field(json_schema_extra={"pattern": r"^[^\x00]*$"})]
PageCursor = Annotated[
    str,
    Field(json_schema_extra={"pattern": r"^([0-9]+(\.[0-9]+)?(e[-+]?[0-9]{1,2})?_[^\x00]*)?$"}),
]
"""``next`` of a list that is newest first."""

# As text: a number could be written with an exponent.
Time = Annotated[
    float, BeforeValidator(_seconds), WithJsonSchema({"type": "string", "pattern": SECONDS})
]
"""Unix seconds."""

Model = TypeVar("Model", bound="Query")


class Query(BaseModel):
    """Parameters of a call; all are text, so that types are read from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def read_query(request: web.Request, model: type[Model]) -> Model:
    """Return the query as *model*.

    Raises:
        ApiError: 422 with every problem.
    """
    given: dict[str, Any] = {}
    twice = []
    for name in dict.fromkeys(request.query):
        values = request.query.getall(name)
        field = model.model_fields.get(name)
        if field is not None and get_origin(field.annotation) is list:
            given[name] = values
        elif len(values) > 1:
            twice.append(Problem(name, "is there more than once"))
        else:
            given[name] = values[0]
    try:
        read = model.model_validate(given)
    except ValidationError as error:
        raise invalid([*twice, *_named(error)]) from None
    if twice:
        raise invalid(twice)
    return read


def _named(error: ValidationError) -> list[Problem]:
    renamed = {"unknown field": "unknown parameter"}
    return [Problem(p.path, renamed.get(p.message, p.message)) for p in problems_of(error)]


def read_place(after: str) -> Key | None:
    """Return after which row a page begins that is ordered by time.

    Raises:
        ApiError: 422 if it is none that a page has named.
    """
    try:
        return Key.read(after) if after else None
    except ValueError:
        raise invalid([Problem("after", "should be `next` of the page before")]) from None


def last_event_id(request: web.Request, after: int | None) -> int | None:
    """Return after which number a stream goes on: the header's, or else the query's.

    The header is what a reader sends that connects again.

    Raises:
        ApiError: 422 if the header is no number.
    """
    raw = request.headers.get("Last-Event-ID", "").strip()
    if not raw:
        return after
    number = whole_number(raw)
    if number is None:
        raise invalid([Problem("Last-Event-ID", "should be the number of an event")])
    return number
