"""Tests the OpenAPI description: it is valid and complete, and agrees with the code.

The other tests in this folder check every response against the description.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel, ValidationError

from controller.api.error_responses import ERRORS
from controller.api.openapi import EXAMPLES, add_schema
from controller.api.requests import SECONDS
from controller.api.resources.updates import render_update
from controller.store.outbox.update_rows import UpdateRow
from tests.controller.api.conftest import Api

ROOT = Path(__file__).parents[3]
# Routes without an operation in the description.
OTHERS = {("/v1/openapi.json", "get")}
# Names of methods and types in generated clients: they stay.
PUBLISHED = json.loads(Path(__file__).with_name("published_names.json").read_text())


async def fetch(api: Api) -> dict[str, Any]:
    """Return the description as the API serves it."""
    document: dict[str, Any] = await (await api.client.get("/v1/openapi.json")).json()
    return document


async def test_the_served_openapi_document_is_valid(api: Api) -> None:
    document = await fetch(api)
    assert document == api.described.document
    validate(document)
    job = document["components"]["schemas"]["Job"]
    assert {"id", "owner", "image", "replicas", "interactive"} <= set(job["properties"])
    assert job["additionalProperties"] is False
    assert document["servers"][0]["url"] == "/"


async def test_each_route_has_an_operation_with_unique_id_and_tag(api: Api) -> None:
    document = await fetch(api)
    served = {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    routes = {
        (route.resource.canonical, route.method.lower())
        for route in api.client.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert served.keys() == {one for one in routes if not one[0].startswith("/docs")} - OTHERS
    names = [one["operationId"] for one in served.values()]
    assert len(set(names)) == len(names)
    assert set(PUBLISHED["operations"]) <= set(names)
    assert set(PUBLISHED["schemas"]) <= set(document["components"]["schemas"])
    tags = {tag["name"] for tag in document["tags"]}
    # Generators put each tag into a file of its own: the webhooks must not share one with a client.
    webhooks = [one["post"] for one in document["webhooks"].values()]
    assert {tag for one in webhooks for tag in one["tags"]} == {"webhooks"}
    assert {tag for one in served.values() for tag in one["tags"]} == tags - {"webhooks"}
    assert [one["operationId"] for one in webhooks] == list(document["webhooks"])


async def test_every_example_matches_its_schema(api: Api) -> None:
    seen = 0
    for *place, media in contents(api.described.document):
        examples = [one["value"] for one in media.get("examples", {}).values()]
        if "example" in media:
            examples.append(media["example"])
        assert examples or place[-3:-1] == ["default", "content"], place
        for example in examples:
            assert api.described.problems(example, *place, "schema") == [], place
            seen += 1
    assert seen > 200
    for one in api.operations:
        if one.body is not None:
            one.body.model_validate(EXAMPLES[one.body.__name__])


def contents(document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield each media type of each request and response, after its position in the document."""
    described = [(name, *one) for name in ("paths", "webhooks") for one in document[name].items()]
    for where, path, methods in described:
        for method, operation in methods.items():
            place = (where, path, method)
            for kind, media in operation.get("requestBody", {}).get("content", {}).items():
                yield (*place, "requestBody", "content", kind, media)
            for status, response in operation["responses"].items():
                for kind, media in response.get("content", {}).items():
                    yield (*place, "responses", status, "content", kind, media)


async def test_the_example_of_a_job_is_accepted(api: Api) -> None:
    response = await api.client.post("/v1/jobs", json=EXAMPLES["SubmitRequest"])
    assert (await response.json())["items"] == [EXAMPLES["SubmitResult"]]


async def test_the_example_of_a_batch_shows_the_response_to_its_request(api: Api) -> None:
    response = await api.client.post("/v1/batches", json=EXAMPLES["BatchRequest"])
    answered, shown = (await response.json())["results"], EXAMPLES["NewBatchView"]["results"]
    assert [one["parameters"] for one in answered] == [one["parameters"] for one in shown]


async def test_each_field_of_a_job_a_session_an_update_and_an_entry_is_described(api: Api) -> None:
    schemas = (await fetch(api))["components"]["schemas"]
    for model in (
        "Job",
        "Endpoint",
        "JobView",
        "JobDetails",
        "SessionAnswer",
        "Update",
        "UsageView",
    ):
        for name, field in schemas[model]["properties"].items():
            assert field.get("description") or "$ref" in field, (model, name)


async def test_every_raised_error_code_is_documented_at_an_operation(api: Api) -> None:
    raised = set[str]()
    for path in (ROOT / "controller").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="ApiError" | "CommandRefused"),
                    args=[ast.Constant(value=str() as code), *_],
                ):
                    raised.add(code)
    assert raised == set(ERRORS)
    assert {code for one in api.operations for code in one.codes()} == raised


async def test_a_generated_client_accepts_errors_of_later_versions(api: Api) -> None:
    later = {"code": "of_a_later_version", "message": "Something new.", "details": {"more": 1}}
    seen = 0
    for *place, media in contents(api.described.document):
        if place[0] == "paths" and place[3] == "responses" and place[4][0] in "45":
            assert media["schema"] == {"$ref": "#/components/schemas/Error"}, place
            assert api.described.problems(later, *place, "schema") == [], place
            seen += len(media["examples"])
    assert seen > 200


async def test_bounds_of_query_parameters_are_documented(api: Api) -> None:
    parameters = {
        (path, one["name"]): one["schema"]
        for path, methods in api.described.document["paths"].items()
        for one in methods.get("get", {}).get("parameters", ())
    }
    assert parameters["/v1/usage", "limit"]["maximum"] == 1000
    assert parameters["/v1/usage", "after"]["minimum"] == 0
    assert parameters["/v1/jobs", "since"]["anyOf"][0]["pattern"] == SECONDS


@pytest.mark.parametrize(
    ("model", "body", "fits"),
    [
        ("RevokeRequest", {}, True),
        ("RevokeRequest", {"jti": "a", "sub": None}, True),
        ("RevokeRequest", {"jti": "a", "sub": "b"}, False),
        ("RevokeRequest", {"jti": None}, False),
        ("RevokeRequest", {"jti": None, "sub": None}, False),
        ("AckRequest", {"through": 1, "exhausted": [{"job": "a", "owner": None}]}, True),
        ("AckRequest", {"through": 1, "exhausted": [{"job": "a", "owner": {"user": "b"}}]}, False),
        ("AckRequest", {"through": 1, "exhausted": [{"job": None}]}, False),
        ("AckRequest", {"through": 1, "exhausted": [{"owner": {"user": None}}]}, False),
        ("AckRequest", {"through": 1, "exhausted": [{"owner": {"project": "c"}}]}, True),
        (
            "AckRequest",
            {"through": 1, "exhausted": [{"owner": {"user": "b", "project": "c"}}]},
            True,
        ),
        ("AckRequest", {"through": 25.0}, True),
        ("AckRequest", {"through": 25.5}, False),
        ("AckRequest", {"through": -1}, False),
        ("ExtendRequest", {"seconds": 0}, False),
        ("ExtendRequest", {"seconds": 1e3}, True),
        ("ExtendRequest", {"seconds": True}, False),
        ("ExplainRequest", {"token": "a\nb~"}, True),
        ("ExplainRequest", {"token": "\u00e9"}, False),
        ("ExplainRequest", {"token": ""}, False),
    ],
)
async def test_the_schema_accepts_exactly_what_validation_accepts(
    api: Api, model: str, body: dict[str, Any], fits: bool
) -> None:
    assert (api.described.problems(body, "components", "schemas", model) == []) is fits
    (one,) = {one.body for one in api.operations if one.body and one.body.__name__ == model}
    try:
        one.model_validate(body)
    except ValidationError:
        assert not fits
    else:
        assert fits


async def test_webhooks_are_documented_as_sent(api: Api) -> None:
    webhooks = api.described.document["webhooks"]
    for webhook in webhooks.values():
        headers = {one["name"] for one in webhook["post"]["parameters"]}
        assert headers == {"webhook-id", "webhook-timestamp", "webhook-signature"}
        assert webhook["post"]["security"] == []
    row = UpdateRow(
        id=7, job_id="j1", attempt=1, at=5.0, state="FAILURE", reason="exit_code", message=None,
        exits=[{"rank": 0, "exit_code": 3}], details={"cause": "exit_code"},
    )  # fmt: skip
    place = ("webhooks", "jobUpdated", "post", "requestBody", "content", "application/json")
    assert api.described.problems(json.loads(render_update(row)), *place, "schema") == []


def test_two_models_cannot_share_a_name() -> None:
    def model(**fields: Any) -> type[BaseModel]:
        return type("Same", (BaseModel,), {"__annotations__": fields})

    schemas: dict[str, Any] = {}
    add_schema(schemas, model(one=int), "validation")
    add_schema(schemas, model(one=int), "validation")
    with pytest.raises(ValueError, match="two models are called Same"):
        add_schema(schemas, model(other=str), "validation")
