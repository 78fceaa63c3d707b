"""The API's description (OpenAPI 3.1), made from what is offered and the models that validate."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from controller.api.error_responses import ERRORS, error_headers
from controller.api.operations import EVENTS, JSON, Operation
from controller.api.response_models import Update, UpdatesForgotten
from controller.jobs.spec.model import ENDPOINT_PATTERN, ID_PATTERN, Job
from controller.jobs.submission.batch_template import BATCH_ID

EXAMPLES: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("examples.json").read_text("utf-8")
)
"""Of each model that is sent, by its name; of what is no JSON, by operation and media type."""

_REF: Final = "#/components/schemas/{model}"
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "A word for programs; new ones may come."},
        "message": {"type": "string", "description": "A text for people."},
        "details": {"description": "For 422 and 409, `problems` with the path of each."},
    },
}
_TAGS: Final[Mapping[str, str]] = {
    "jobs": "Submit, find, follow and end jobs, and read what they write.",
    "batches": "Jobs of one template.",
    "updates": "What becomes of all jobs, in order.",
    "sessions": "Ways into running jobs, for people.",
    "keys": "The keys that tokens are signed with.",
    "explain": "Why a session or a job cannot be used.",
    "usage": "The ledger of what jobs have used.",
    "utilization": "How full the cluster is.",
    "products": "What may be asked for.",
    "kinds": "The kinds of jobs, and their parameters.",
    "maintenance": "Whether jobs are taken and submitted.",
}
"""By the first part of the paths."""
_SENT: Final[Mapping[str, tuple[str, str]]] = {
    "webhook-id": ("upd_1842_4f1c7a90d3b26e58a1c2f7d0", "The same with every attempt."),
    "webhook-timestamp": ("1750000000", "When the attempt was made: unix seconds."),
    "webhook-signature": (
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
        "`v1,` and an HMAC-SHA256 in base64, for each secret.",
    ),
}
"""The headers of webhooks: an example of each, and what it says."""
_TEXT: Final = {"type": "string"}
_DONE: Final[Mapping[int, str]] = {200: "Done.", 201: "Made.", 202: "Begun, and not over yet."}
_IN_PATH: Final = re.compile(r"{(\w+)}")
_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "id": (ID_PATTERN, "j1"),
    "batch": (BATCH_ID, "sweep"),
    "tool": (ENDPOINT_PATTERN, "tensorboard"),
    "sid": ("^[a-z2-7]{26}$", "mfrggzdfmztwq2lkobrwk3tuna"),
    "kid": (r"^[^\x00-\x1f\x7f]{1,255}$", "key-1"),
}
"""In paths: the pattern of each, and an example."""


def describe(
    version: str,
    operations: Sequence[Operation],
    offered_fields: Collection[str],
    job_fields: Mapping[str, type[BaseModel]],
) -> dict[str, Any]:
    """Return the description of *operations*, where jobs may say *offered_fields*.

    *job_fields* holds the schemas of what jobs may say to plugins, by the plugins' names.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    add_schema(schemas, Job, "validation")
    _offer(schemas["Job"], offered_fields)
    _add_job_fields(schemas, job_fields)
    # Each item is read by itself; what it may be is a job.
    schemas["SubmitRequest"]["properties"]["items"]["items"] = _reference("Job")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fumarole controller", "version": version},
        # Wherever it is: the host that the description was read from.
        "servers": [{"url": "/", "description": "This controller."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"orchestrator": []}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "orchestrator": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
        "paths": paths,
        "webhooks": _webhooks(schemas),
    }


def _webhooks(schemas: dict[str, Any]) -> dict[str, Any]:
    """Describe what is sent to receivers (docs/controller-api.md, "Webhooks")."""
    update = EXAMPLES["UpdatePage"]["items"][0]
    forgotten = {"event": "forgotten", "through": 1842}
    return {
        "jobUpdated": _webhook(schemas, Update, "Tell what became of a job", update),
        "updatesForgotten": _webhook(
            schemas, UpdatesForgotten, "Tell that updates are missing", forgotten
        ),
    }


def _webhook(
    schemas: dict[str, Any], model: type[BaseModel], summary: str, example: Any
) -> dict[str, Any]:
    add_schema(schemas, model, "serialization")
    headers = [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
        | {"description": text, "example": value}
        for name, (value, text) in _SENT.items()
    ]
    sent = {
        "tags": ["updates"],
        "summary": summary,
        "security": [],  # no token of ours: a receiver verifies the signature
        "parameters": headers,
        "requestBody": {
            "required": True,
            "content": _json(_reference(model.__name__), example=example),
        },
        "responses": {
            "2XX": {"description": "Accepted."},
            "410": {"description": "The receiver wants no more."},
            "default": {"description": "It is sent again later, as `Retry-After` says."},
        },
    }
    return {"post": sent}


def _operation(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.path.split("/")[2]],
        "summary": one.summary,
        "parameters": [*_parameters(one)],
        "responses": {
            **{str(status): _answer(one, status, schemas) for status in one.statuses},
            **dict(_refusals(one)),
            "default": {"description": "Refused.", "content": _json(_reference("Error"))},
        },
    }
    if one.body is not None:
        add_schema(schemas, one.body, "validation")
        name = one.body.__name__
        body = _json(_reference(name), example=EXAMPLES[name])
        described["requestBody"] = {"required": True, "content": body}
    return described


def _answer(one: Operation, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if one.answer is not None:
        add_schema(schemas, one.answer, "serialization")
        schema, example = _reference(one.answer.__name__), EXAMPLES[one.answer.__name__]
        if one.many:
            items = {"type": "array", "items": schema}
            schema = {"type": "object", "required": ["items"], "properties": {"items": items}}
            example = {"items": [example]}
        content = _json(schema, example=example)
    for kind in one.media:
        if kind != JSON:
            # Some read it as the stream's schema, and some, before OpenAPI 3.2, as each event's.
            schema = {"description": "Server-sent events."} if kind == EVENTS else _TEXT
            content[kind] = {"schema": schema, "example": EXAMPLES[f"{one.name} {kind}"]}
    return {"description": _DONE[status], "content": content}


def _refusals(one: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield by status which errors the call has, each code with an example."""
    codes = sorted(one.codes())
    for status in sorted({ERRORS[code].status for code in codes}):
        errors = {code: ERRORS[code] for code in codes if ERRORS[code].status == status}
        examples = {}
        for code, error in errors.items():
            details = {} if error.details is None else {"details": error.details}
            examples[code] = {"value": {"code": code, "message": error.message, **details}}
        # No enumeration of the codes: clients made from it would fail at a later version's.
        refusal: dict[str, Any] = {
            "description": " ".join(f"`{code}`: {one.message}" for code, one in errors.items()),
            "content": _json(_reference("Error"), examples=examples),
        }
        if headers := error_headers(status):
            refusal["headers"] = {
                name: {"description": text, "schema": {"type": "string"}, "example": value}
                for name, (value, text) in headers.items()
            }
        yield str(status), refusal


def _json(schema: Mapping[str, Any], **examples: Any) -> dict[str, Any]:
    return {JSON: {"schema": schema, **examples}}


def _parameters(one: Operation) -> Collection[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in _IN_PATH.findall(one.path):
        pattern, example = _NAMES[name]
        schema = {"type": "string", "pattern": pattern}
        found.append(
            {"name": name, "in": "path", "required": True, "schema": schema, "example": example}
        )
    if one.query is not None:
        query = one.query.model_json_schema()
        definitions = query.get("$defs", {})
        for name, field in query["properties"].items():
            field = _inlined(field, definitions)
            found.append({"name": name, "in": "query", "required": False, "schema": field})
    for name, pattern in one.headers.items():
        schema = {"type": "string", "pattern": pattern}
        found.append({"name": name, "in": "header", "required": False, "schema": schema})
    return found


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return *schema* with its definitions in place: a parameter has nowhere to keep them."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    return schema


def add_schema(schemas: dict[str, Any], model: type[BaseModel], mode: Any) -> None:
    """Add what *model* is to *schemas*, where every name is that of one model alone."""
    schema = model.model_json_schema(ref_template=_REF, mode=mode)
    for name, found in [*schema.pop("$defs", {}).items(), (model.__name__, schema)]:
        if schemas.setdefault(name, found) != found:
            raise ValueError(f"two models are called {name}")


def _offer(job: dict[str, Any], fields: Collection[str]) -> None:
    job["properties"] = {name: one for name, one in job["properties"].items() if name in fields}


def _add_job_fields(schemas: dict[str, Any], fields: Mapping[str, type[BaseModel]]) -> None:
    """Describe what jobs say to plugins, whose models may be called as others are."""
    needed = []
    for name, model in fields.items():
        reference = _REF.format(model=f"plugins.{name}.{{model}}")
        schema = model.model_json_schema(ref_template=reference, mode="validation")
        for inner, definition in schema.pop("$defs", {}).items():
            schemas[f"plugins.{name}.{inner}"] = definition
        schemas[f"plugins.{name}"] = schema
        if schema.get("required"):
            needed.append(name)
    properties = {name: _reference(f"plugins.{name}") for name in fields}
    job = schemas["Job"]
    told = {"description": job["properties"]["plugins"]["description"]}
    plugins = {"type": "object", "additionalProperties": False, "properties": properties}
    job["properties"]["plugins"] = plugins | told
    if needed:
        job["properties"]["plugins"]["required"] = needed
        job["required"] = [*job["required"], "plugins"]


def _reference(model: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model)}
