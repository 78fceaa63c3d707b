"""The API's description (OpenAPI 3.1), made from the models that validate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel

from controller.api.jobs import SubmitRequest, TerminateRequest
from controller.api.sessions import OpenRequest, RevokeRequest
from controller.jobs.lifecycle import State
from controller.jobs.model import Job

_REF: Final = "#/components/schemas/{model}"
_JOB_STATE: Final = {
    "type": "object",
    "required": ["id", "owner", "state", "attempt", "submitted_at"],
    "description": "The job as it was asked for, and how it is.",
    "properties": {
        "state": {"enum": [str(state) for state in State]},
        "reason": {"type": ["string", "null"], "description": "A word for programs."},
        "message": {"type": ["string", "null"], "description": "A text for people."},
        "attempt": {"type": "integer", "minimum": 1},
        "submitted_at": {"type": "number", "description": "Unix seconds."},
        "started_at": {"type": ["number", "null"]},
        "finished_at": {"type": ["number", "null"]},
    },
}
_RESULT: Final = {
    "type": "object",
    "required": ["id", "result"],
    "properties": {
        "id": {"type": ["string", "null"]},
        "result": {"enum": ["created", "unchanged", "conflict", "rejected"]},
        "problems": {"type": "array", "items": {"$ref": _REF.format(model="Problem")}},
    },
}
_SESSION: Final = {
    "type": "object",
    "required": ["sid", "hosts", "job", "rank", "kind", "state"],
    "properties": {
        "sid": {"type": "string", "pattern": "^[a-z2-7]{26}$"},
        "hosts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "job": {"type": "string"},
        "rank": {"type": "integer"},
        "kind": {"enum": ["web", "vnc", "terminal"]},
        "endpoint": {"type": ["string", "null"]},
        "state": {"enum": ["starting", "ready", "ended"]},
        "created_at": {"type": "number"},
        "ended_at": {"type": ["number", "null"]},
        "end_reason": {"type": ["string", "null"]},
    },
}
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {"description": "For 422 and 409, `problems` with the path of each."},
    },
}
_PROBLEM: Final = {
    "type": "object",
    "required": ["path", "message"],
    "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
}


def describe(version: str, offered_fields: Collection[str]) -> dict[str, Any]:
    """Return the description of an API whose jobs may say *offered_fields*."""
    schemas: dict[str, Any] = {
        "JobState": _JOB_STATE,
        "SubmitResult": _RESULT,
        "Session": _SESSION,
        "Error": _ERROR,
        "Problem": _PROBLEM,
    }
    for model in (Job, SubmitRequest, TerminateRequest, OpenRequest, RevokeRequest):
        _add(schemas, model)
    _offer(schemas["Job"], offered_fields)
    schemas["SubmitRequest"]["properties"]["items"]["items"] = {"$ref": _REF.format(model="Job")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fumarole controller", "version": version},
        "security": [{"orchestrator": []}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "orchestrator": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
        "paths": _paths(),
    }


def _add(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    schema = model.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema


def _offer(job: dict[str, Any], fields: Collection[str]) -> None:
    job["properties"] = {name: one for name, one in job["properties"].items() if name in fields}


def _paths() -> dict[str, Any]:
    job, sid = _parameter("id"), _parameter("sid")
    job_answer, session_answer = _answer("JobState"), _answer("Session")
    filters = [
        _parameter(name, where="query")
        for name in ("user", "project", "state", "label", "after", "limit")
    ]
    return {
        "/v1/jobs": {
            "post": _operation("Submit jobs", _list_of("SubmitResult"), body="SubmitRequest"),
            "get": _operation("Find jobs", _list_of("JobState"), parameters=filters),
        },
        "/v1/jobs/terminate": {
            "post": _operation("End many jobs", _answer("SubmitResult"), body="TerminateRequest")
        },
        "/v1/jobs/{id}": {
            "get": _operation("Look at a job", job_answer, parameters=[job]),
            "delete": _operation("End a job", job_answer, parameters=[job]),
        },
        "/v1/sessions": {
            "post": _operation("Open sessions", _list_of("Session"), body="OpenRequest", status=201)
        },
        "/v1/sessions/{sid}": {
            "get": _operation("Look at a session", session_answer, parameters=[sid]),
            "delete": _operation("End a session", session_answer, parameters=[sid]),
        },
        "/v1/sessions/{sid}/revoke": {
            "post": _operation(
                "End grants to a session", session_answer, body="RevokeRequest", parameters=[sid]
            )
        },
        "/v1/keys/{kid}/revoke": {
            "post": _operation(
                "End all grants of tokens that a key has signed",
                {"type": "object", "properties": {"kid": {"type": "string"}}},
                parameters=[_parameter("kid")],
            )
        },
    }


def _parameter(name: str, where: str = "path") -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "schema": {"type": "string"},
    }


def _answer(model: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model)}


def _list_of(model: str) -> dict[str, Any]:
    items = {"type": "array", "items": _answer(model)}
    return {"type": "object", "required": ["items"], "properties": {"items": items}}


def _operation(
    summary: str,
    answer: Mapping[str, Any],
    *,
    body: str | None = None,
    parameters: Collection[Mapping[str, Any]] = (),
    status: int = 200,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            str(status): {"description": "Done.", "content": _json(answer)},
            "default": {"description": "Refused.", "content": _json(_answer("Error"))},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(_answer(body))}
    return operation


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
