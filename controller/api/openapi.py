"""The API's description (OpenAPI 3.1), made from what is offered and the models that validate."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from controller.api.operations import EVENTS, JSON, Operation
from controller.jobs.spec.model import Job

_REF: Final = "#/components/schemas/{model}"
_ERROR: Final = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "A word for programs."},
        "message": {"type": "string", "description": "A text for people."},
        "details": {"description": "For 422 and 409, `problems` with the path of each."},
    },
}
_IN_PATH: Final = re.compile(r"{(\w+)}")


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
    _add(schemas, Job, "validation")
    _offer(schemas["Job"], offered_fields)
    _add_job_fields(schemas, job_fields)
    # Each item is read by itself; what it may be is a job.
    schemas["SubmitRequest"]["properties"]["items"]["items"] = _reference("Job")
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
        "paths": paths,
    }


def _operation(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": one.summary,
        "parameters": [*_parameters(one)],
        "responses": {
            **{str(status): _answer(one, schemas) for status in one.statuses},
            "default": _content("Refused.", {JSON: _reference("Error")}),
        },
    }
    if one.body is not None:
        _add(schemas, one.body, "validation")
        body = {JSON: {"schema": _reference(one.body.__name__)}}
        described["requestBody"] = {"required": True, "content": body}
    return described


def _answer(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    schema: Mapping[str, Any] = {"type": "string"}
    if one.answer is not None:
        _add(schemas, one.answer, "serialization")
        schema = _reference(one.answer.__name__)
    if one.many:
        items = {"type": "array", "items": schema}
        schema = {"type": "object", "required": ["items"], "properties": {"items": items}}
    texts = {"type": "string"}
    return _content("Done.", {kind: schema if kind == JSON else texts for kind in one.media})


def _content(description: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    if EVENTS in content:
        content[EVENTS]["schema"] = {"type": "string", "description": "Server-sent events."}
    return {"description": description, "content": content}


def _parameters(one: Operation) -> Collection[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _IN_PATH.findall(one.path)
    ]
    if one.query is not None:
        schema = one.query.model_json_schema()
        definitions = schema.get("$defs", {})
        for name, field in schema["properties"].items():
            field = _inlined(field, definitions)
            found.append({"name": name, "in": "query", "required": False, "schema": field})
    return found + [
        {"name": header, "in": "header", "required": False, "schema": {"type": "string"}}
        for header in one.headers
    ]


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return *schema* with its definitions in place: a parameter has nowhere to keep them."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    return schema


def _add(schemas: dict[str, Any], model: type[BaseModel], mode: Any) -> None:
    schema = model.model_json_schema(ref_template=_REF, mode=mode)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema


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
    job, plugins = schemas["Job"], {"type": "object", "additionalProperties": False}
    job["properties"]["plugins"] = plugins | {"properties": properties}
    if needed:
        job["properties"]["plugins"]["required"] = needed
        job["required"] = [*job["required"], "plugins"]


def _reference(model: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model)}
