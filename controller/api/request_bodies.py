"""Reads what was sent: bounded, strictly JSON, and every problem named by its path."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from aiohttp import HttpVersion11, web
from pydantic import BaseModel, BeforeValidator, ValidationError

from controller.api.error_responses import CODINGS, ApiError, invalid
from controller.jobs.spec.problems import problems_of
from shared.jose.jws import strict_json_object
from shared.runtime.serving import refusal

MAX_BODY_BYTES: Final = 4 << 20
MOST_ITEMS: Final = 1000

Model = TypeVar("Model", bound=BaseModel)


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given


# Outermost, or the description would not tell the bounds within.
WHOLE_NUMBER: Final = BeforeValidator(_whole)
"""A whole number however it is written: to JSON Schema ``25.0`` is an integer, too."""


def is_given(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an object that has the field, and not as null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


async def meet_expectation(request: web.Request) -> web.StreamResponse | None:
    """Have a client send its body that waits to be told so; refuse what else it may expect.

    Before any middleware, as aiohttp does it (RFC 9110, section 10.1.1).
    """
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].lower() != "100-continue":
        return web.json_response(refusal(417), status=417)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response has not begun
    return None


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in the body.

    Raises:
        ApiError: 413, 415 (also for a content coding), or 400 for what is no JSON object, repeats a
            key, breaks off, or is not in the coding that it names (RFC 9110, section 8.4).
    """
    if request.content_type != "application/json":
        raise ApiError("not_json")
    # aiohttp hands on what has a coding that it does not know as if it had none.
    coding = ",".join(request.headers.getall("Content-Encoding", ()))
    if (coding.lower() or "identity") not in CODINGS:
        raise ApiError("unknown_coding")
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise ApiError("too_large", f"A body has at most {MAX_BODY_BYTES} bytes.")
    try:
        return strict_json_object(await _read(request))
    except ValueError as error:
        raise ApiError("bad_json", f"The body is not a JSON object: {error}.") from None


async def _read(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.RequestPayloadError as error:
        raise ValueError("it is not in the coding that Content-Encoding names") from error
    except OSError as error:
        raise ValueError("it breaks off") from error


async def read_model(request: web.Request, model: type[Model]) -> Model:
    """Return the body as *model*.

    Raises:
        ApiError: As :func:`read_object`, or 422 with every problem.
    """
    content = await read_object(request)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise invalid(problems_of(error)) from None
