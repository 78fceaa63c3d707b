"""Parses requests strictly and within bounds; each problem is named by its path.

Bodies are JSON. Unknown and repeated query parameters are refused.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import Annotated, Any, Final, TypeVar, get_origin

from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from controller.api.error_responses import CODINGS, ApiError, Handler, invalid
from controller.jobs.spec.problems import Problem, problems_of
from controller.store.paging import Key
from shared.jose.jws import strict_json_object
from shared.runtime.listeners import refusal
from shared.text import whole_number

MAX_BODY_BYTES: Final = 4 << 20
"""Both before and after decoding of the content coding."""
MOST_VALUES: Final = 1 << 18
"""Members of objects and elements of arrays in a body; empty objects and arrays count twice. A
million numbers fit into 4 MiB and take a second to parse."""
LARGE_BYTES: Final = 64 << 10
"""A larger body, one of unknown length or an encoded one counts as large."""
MOST_LARGE: Final = 8
"""Requests with large bodies that are under way at a time. One takes some 40 MiB once parsed."""
BODY_SECONDS: Final = 60.0
"""Deadline for the whole body."""
MOST_ITEMS: Final = 1000

Model = TypeVar("Model", bound=BaseModel)


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given


# Outermost: otherwise the description would lack the bounds inside.
WHOLE_NUMBER: Final = BeforeValidator(_whole)
"""Accepts a whole number in any notation: to JSON Schema, ``25.0`` is an integer too."""


def is_given(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an object in which the field *name* is present and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


async def meet_expectation(request: web.Request) -> web.StreamResponse | None:
    """Answer ``Expect: 100-continue``, and refuse other expectations with 417.

    aiohttp calls this before any middleware (RFC 9110, section 10.1.1).
    """
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].lower() != "100-continue":
        return web.json_response(refusal(417), status=417)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the final response has not begun
    return None


def few_large_bodies() -> Middleware:
    """Return a middleware by which requests with large bodies wait while many are under way.

    Until then little of their bodies is read. Streams are responses to GET and hold no place.
    """
    places = asyncio.Semaphore(MOST_LARGE)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "GET" or not _is_large(request):
            return await handler(request)
        async with places:
            return await handler(request)

    return middleware


def _is_large(request: web.Request) -> bool:
    length = request.content_length
    if length is None or "Content-Encoding" in request.headers:
        return request.body_exists
    return length > LARGE_BYTES


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in the body.

    Raises:
        ApiError: 413; 415, also for an unknown content coding; or 400 for a body that is not a
            JSON object, repeats a key, is incomplete, or does not match its content coding
            (RFC 9110, section 8.4).
    """
    too_large = ApiError("too_large", f"The body must have at most {MAX_BODY_BYTES} bytes.")
    if request.content_type != "application/json":
        raise ApiError("not_json")
    coding = ",".join(request.headers.getall("Content-Encoding", ())).lower() or "identity"
    if coding not in CODINGS:
        raise ApiError("unknown_coding")
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise too_large
    try:
        body = _decoded(await _read(request), coding)
        if len(body) > MAX_BODY_BYTES:
            raise too_large
        if _values(body) > MOST_VALUES:
            text = f"The body must have at most {MOST_VALUES} values."
            raise ApiError("too_large", text)
        return strict_json_object(body)
    except ValueError as error:
        raise ApiError("bad_json", f"The body is not a JSON object: {error}.") from None


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise ValueError(f"it did not arrive within {BODY_SECONDS:g} seconds") from error
    except (web.RequestPayloadError, OSError) as error:
        raise ValueError("it is incomplete") from error


def _values(body: bytes) -> int:
    """Return the number of members and elements in *body*, exact if it may exceed the limit.

    Below the limit, commas and brackets in strings are counted too, which is cheaper.
    """
    found = _opened_or_continued(body)
    if found <= MOST_VALUES:
        return found
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return _opened_or_continued(b"".join(bare.split(b'"')[::2]))


def _opened_or_continued(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def _decoded(sent: bytes, coding: str) -> bytes:
    """Decode *sent* from *coding* (RFC 9110, section 8.4.1), up to one byte over the limit.

    ``deflate`` is also accepted without its zlib header, as some clients send it.

    Raises:
        ValueError: If *sent* is not one complete stream in that coding.
    """
    if coding == "identity":
        return sent
    bits = zlib.MAX_WBITS
    if coding == "gzip":
        bits += 16
    elif sent and sent[0] & 0x0F != zlib.DEFLATED:
        bits = -bits
    inflating = zlib.decompressobj(bits)
    try:
        body = inflating.decompress(sent, MAX_BODY_BYTES + 1)
    except zlib.error:
        body = b""
    whole = inflating.eof and not inflating.unused_data
    if not whole and len(body) <= MAX_BODY_BYTES:
        raise ValueError("it does not match its Content-Encoding")
    return body


async def read_model(request: web.Request, model: type[Model]) -> Model:
    """Return the request body as *model*.

    Raises:
        ApiError: As :func:`read_object`; or 422, which names every problem.
    """
    content = await read_object(request)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise invalid(problems_of(error)) from None


DEFAULT_LIMIT = 100
MOST_LIMIT = 1000
SECONDS: Final = r"^[0-9]{1,12}(\.[0-9]{1,15})?$"
EVENT_NUMBER: Final = "^([0-9]{1,18})?$"
"""The pattern of an update's number, in ``Last-Event-ID``."""


def _number(raw: object) -> int:
    number = whole_number(raw) if isinstance(raw, str) else None
    if number is None:
        raise ValueError("should be a number in decimal digits")
    return number


def _seconds(raw: object) -> float:
    if not isinstance(raw, str) or not re.fullmatch(SECONDS, raw):
        raise ValueError("should be unix seconds in decimal digits")
    return float(raw)


# Outermost: otherwise the description would lack the bounds inside.
WHOLE: Final = BeforeValidator(_number)
Number = Annotated[int, Field(ge=0, le=2**63 - 1), WHOLE]
Limit = Annotated[int, Field(ge=1, le=MOST_LIMIT), WHOLE]

# The pattern is only described: NUL is refused with 400, and an unknown name matches nothing.
Word = Annotated[str, Field(json_schema_extra={"pattern": r"^[^\x00]*$"})]
PageCursor = Annotated[
    str,
    Field(json_schema_extra={"pattern": r"^([0-9]+(\.[0-9]+)?(e[-+]?[0-9]{1,2})?_[^\x00]*)?$"}),
]
"""``next`` of a list with the newest first."""

# A string in the schema: a number could be written with an exponent.
Time = Annotated[
    float, BeforeValidator(_seconds), WithJsonSchema({"type": "string", "pattern": SECONDS})
]
"""Unix seconds."""


class Query(BaseModel):
    """The query parameters of an operation. Values arrive as text and are converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def read_query(request: web.Request, model: type[Model]) -> Model:
    """Return the query as *model*.

    Raises:
        ApiError: 422, which names every problem.
    """
    given: dict[str, Any] = {}
    twice = []
    for name in dict.fromkeys(request.query):
        values = request.query.getall(name)
        field = model.model_fields.get(name)
        if field is not None and get_origin(field.annotation) is list:
            given[name] = values
        elif len(values) > 1:
            twice.append(Problem(name, "is given more than once"))
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
    """Return the row after which a page begins, in a list that is ordered by time.

    Raises:
        ApiError: 422 if *after* is not the ``next`` of a page.
    """
    try:
        return Key.read(after) if after else None
    except ValueError:
        raise invalid([Problem("after", "should be the `next` of the previous page")]) from None


def last_event_id(request: web.Request, after: int | None) -> int | None:
    """Return the number after which a stream continues: from the header, else from the query.

    A client sends the header when it reconnects.

    Raises:
        ApiError: 422 if the header is not a number.
    """
    raw = request.headers.get("Last-Event-ID", "").strip()
    if not raw:
        return after
    number = whole_number(raw)
    if number is None:
        raise invalid([Problem("Last-Event-ID", "should be the number of an event")])
    return number


IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_LONGEST: Final = 64
_KEY: Final = re.compile(rf"[!-~]{{1,{_LONGEST}}}")
QUOTED_KEY: Final = f'^"*[!#-~]([!-~]{{0,{_LONGEST - 2}}}[!#-~])?"*$'
"""The pattern of the header, for the description."""


def read_key(request: web.Request) -> str | None:
    """Return the request's idempotency key, or None without one.

    Raises:
        ApiError: 422 for several keys, or for an invalid one.
    """
    given = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not given:
        return None
    # The draft defines a quoted string; the quotes are not part of the key.
    key = given[0].strip().strip('"')
    if len(given) > 1 or not _KEY.fullmatch(key):
        problem = f"should be one key of 1 to {_LONGEST} visible ASCII characters"
        raise invalid([Problem(IDEMPOTENCY_KEY, problem)])
    return key
