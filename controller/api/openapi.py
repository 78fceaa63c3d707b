"""The OpenAPI 3.1 description, made from the operations and from the models that validate."""

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
from controller.jobs.spec.field_types import ENDPOINT_PATTERN
from controller.jobs.spec.model import Job
from controller.jobs.submission.batch_template import BATCH_ID
from controller.volcano.names import ID_PATTERN

EXAMPLES: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("examples.json").read_text("utf-8")
)
"""By the name of each response model; for other media types, by operation and media type."""

_REF: Final = "#/components/schemas/{model}"
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {
            "type": "string",
            "description": "A machine-readable code. Later versions may add codes.",
        },
        "message": {"type": "string", "description": "A human-readable message."},
        "details": {"description": "For 422 and 409: `problems`, each with its path."},
    },
}
_TAGS: Final[Mapping[str, str]] = {
    "jobs": "Submit, find, follow and end jobs, and read their logs.",
    "batches": "Jobs that are made from one template.",
    "updates": "State changes of all jobs, in order.",
    "sessions": "Interactive sessions in running jobs.",
    "keys": "The keys that sign tokens.",
    "explain": "Why a session or a job cannot be used.",
    "usage": "The ledger of the jobs' resource usage.",
    "utilization": "The utilization of the cluster.",
    "products": "The product catalogue.",
    "kinds": "The kinds of jobs, and their parameters.",
    "maintenance": "Whether jobs are accepted and submitted.",
    "webhooks": "The requests that the receivers of webhooks are sent.",
}
"""By the first segment of the path; webhooks have a tag of their own."""
_WEBHOOK_HEADERS: Final[Mapping[str, tuple[str, str]]] = {
    "webhook-id": ("upd_1842_4f1c7a90d3b26e58a1c2f7d0", "The same for every attempt."),
    "webhook-timestamp": ("1750000000", "The time of the attempt, in unix seconds."),
    "webhook-signature": (
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
        "For each secret: `v1,` and an HMAC-SHA256 in base64.",
    ),
}
"""The headers of webhooks: an example and a description of each."""
_TEXT: Final = {"type": "string"}
_STATUS_DESCRIPTIONS: Final[Mapping[int, str]] = {
    200: "Success.",
    201: "Created.",
    202: "Accepted; the change is not complete yet.",
}
_IN_PATH: Final = re.compile(r"{(\w+)}")
_PATH_PARAMETERS: Final[Mapping[str, tuple[str, str]]] = {
    "id": (ID_PATTERN, "j1"),
    "batch": (BATCH_ID, "sweep"),
    "tool": (ENDPOINT_PATTERN, "tensorboard"),
    "sid": ("^[a-z2-7]{26}$", "mfrggzdfmztwq2lkobrwk3tuna"),
    "kid": (r"^[^\x00-\x1f\x7f]{1,255}$", "key-1"),
}
"""Path parameters: the pattern and an example of each."""


def describe(
    version: str,
    operations: Sequence[Operation],
    offered_fields: Collection[str],
    job_fields: Mapping[str, type[BaseModel]],
) -> dict[str, Any]:
    """Return the OpenAPI document of *operations*.

    The schema of a job contains only *offered_fields*. *job_fields* holds the models of the
    plugins' own fields, by the plugins' names.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    add_schema(schemas, Job, "validation")
    _offer(schemas["Job"], offered_fields)
    _add_job_fields(schemas, job_fields)
    # The model leaves items unread, so that each can be refused by itself; an item is a job.
    schemas["SubmitRequest"]["properties"]["items"]["items"] = _reference("Job")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fumarole controller", "version": version},
        # Relative to the host that the description was read from.
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
    """Return the requests that are sent to webhook receivers."""
    update = EXAMPLES["UpdatePage"]["items"][0]
    forgotten = {"event": "forgotten", "through": 1842}
    deleted = "Updates were deleted before they were delivered"
    webhooks = {
        "jobUpdated": _webhook(schemas, Update, "A job was updated", update),
        "updatesForgotten": _webhook(schemas, UpdatesForgotten, deleted, forgotten),
    }
    return {name: {"post": {"operationId": name, **one}} for name, one in webhooks.items()}


def _webhook(
    schemas: dict[str, Any], model: type[BaseModel], summary: str, example: Any
) -> dict[str, Any]:
    add_schema(schemas, model, "serialization")
    headers = [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
        | {"description": text, "example": value}
        for name, (value, text) in _WEBHOOK_HEADERS.items()
    ]
    return {
        "tags": ["webhooks"],
        "summary": summary,
        "security": [],  # no bearer token: the receiver verifies the signature
        "parameters": headers,
        "requestBody": {
            "required": True,
            "content": _json(_reference(model.__name__), example=example),
        },
        "responses": {
            "2XX": {"description": "Accepted."},
            "410": {"description": "The receiver is disabled: nothing more is sent."},
            "default": {"description": "The request is repeated later, as `Retry-After` says."},
        },
    }


def _operation(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.path.split("/")[2]],
        "summary": one.summary,
        "parameters": [*_parameters(one)],
        "responses": {
            **{str(status): _response(one, status, schemas) for status in one.statuses},
            **dict(_refusals(one)),
            "default": {"description": "Error.", "content": _json(_reference("Error"))},
        },
    }
    if one.body is not None:
        add_schema(schemas, one.body, "validation")
        name = one.body.__name__
        body = _json(_reference(name), example=EXAMPLES[name])
        described["requestBody"] = {"required": True, "content": body}
    return described


def _response(one: Operation, status: int, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if one.response_model is not None:
        add_schema(schemas, one.response_model, "serialization")
        schema, example = (
            _reference(one.response_model.__name__),
            EXAMPLES[one.response_model.__name__],
        )
        if one.is_list:
            items = {"type": "array", "items": schema}
            schema = {"type": "object", "required": ["items"], "properties": {"items": items}}
            example = {"items": [example]}
        content = _json(schema, example=example)
    for kind in one.media:
        if kind != JSON:
            # Before OpenAPI 3.2, some tools apply the schema to the stream, others to each event.
            schema = {"description": "Server-sent events."} if kind == EVENTS else _TEXT
            content[kind] = {"schema": schema, "example": EXAMPLES[f"{one.name} {kind}"]}
    return {"description": _STATUS_DESCRIPTIONS[status], "content": content}


def _refusals(one: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the error responses of an operation by status, with an example for each code."""
    codes = sorted(one.codes())
    for status in sorted({ERRORS[code].status for code in codes}):
        errors = {code: ERRORS[code] for code in codes if ERRORS[code].status == status}
        examples = {}
        for code, error in errors.items():
            details = {} if error.details is None else {"details": error.details}
            examples[code] = {"value": {"code": code, "message": error.message, **details}}
        # The schema does not enumerate the codes: generated clients would reject a later code.
        refusal: dict[str, Any] = {
            "description": " ".join(f"`{code}`: {one.message}" for code, one in errors.items()),
            "content": _json(_reference("Error"), examples=examples),
        }
        headers = [error_headers(code) for code in errors]
        if any(headers):
            refusal["headers"] = {
                name: {"description": text, "schema": {"type": "string"}, "example": value}
                | {"required": all(name in one for one in headers)}
                for some in headers
                for name, (value, text) in some.items()
            }
        yield str(status), refusal


def _json(schema: Mapping[str, Any], **examples: Any) -> dict[str, Any]:
    return {JSON: {"schema": schema, **examples}}


def _parameters(one: Operation) -> Collection[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in _IN_PATH.findall(one.path):
        pattern, example = _PATH_PARAMETERS[name]
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
    """Return *schema* with its definitions inlined: a parameter has no place for ``$defs``."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    return schema


def add_schema(schemas: dict[str, Any], model: type[BaseModel], mode: Any) -> None:
    """Add the schema of *model* to *schemas*.

    Raises:
        ValueError: If a different model has the same name.
    """
    schema = model.model_json_schema(ref_template=_REF, mode=mode)
    for name, found in [*schema.pop("$defs", {}).items(), (model.__name__, schema)]:
        if schemas.setdefault(name, found) != found:
            raise ValueError(f"two models are called {name}")


def _offer(job: dict[str, Any], fields: Collection[str]) -> None:
    job["properties"] = {name: one for name, one in job["properties"].items() if name in fields}


def _add_job_fields(schemas: dict[str, Any], fields: Mapping[str, type[BaseModel]]) -> None:
    """Describe the plugins' own fields. Their models get a prefix, so that names cannot clash."""
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
    described = {"description": job["properties"]["plugins"]["description"]}
    plugins = {"type": "object", "additionalProperties": False, "properties": properties}
    job["properties"]["plugins"] = plugins | described
    if needed:
        job["properties"]["plugins"]["required"] = needed
        job["required"] = [*job["required"], "plugins"]


def _reference(model: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model)}
