"""Tests a job's fields for plugins: validated at submission, stored, returned and described."""

from __future__ import annotations

import datetime
import json
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field, field_validator

from controller.plugin_api import Job, JobBuilder, JobFields, JobPlugin
from tests.controller.api.conftest import Api


def job(**fields: Any) -> dict[str, Any]:
    return {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"} | fields


async def call(api: Api, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    response = await api.client.request(method, path, json=body)
    return response.status, await response.json()


class Account(JobFields):
    """The job fields of the plugin ``cost_centre``."""

    centre: str = Field(pattern="^[A-Z]{2}$")
    shares: dict[str, int] = Field(default_factory=dict)
    until: datetime.date | None = None
    kind: Literal["grant", "own"] = "own"

    @field_validator("shares")
    @classmethod
    def _adds_up(cls, value: dict[str, int]) -> dict[str, int]:
        if "boom" in value:
            raise ZeroDivisionError
        if value and sum(value.values()) != 100:
            raise ValueError("should add up to 100")
        return value


class CostCentre(JobPlugin):
    """A plugin with job fields."""

    name: ClassVar[str] = "cost_centre"
    job_fields_model: ClassVar[type[JobFields] | None] = Account

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        fields = self.own_fields(job, Account)
        builder.volcano_job.annotations["example.com/centre"] = f"{fields.centre} {fields.until}"


@pytest.fixture
def others() -> list[type[JobPlugin]]:
    return [CostCentre]


async def test_fields_of_a_plugin_are_stored_and_returned(api: Api) -> None:
    said = {"cost_centre": {"centre": "AB", "shares": {"x": 40, "y": 60}, "until": "2027-01-01"}}
    asked = job(plugins=said)
    assert (await call(api, "POST", "/v1/jobs", {"items": [asked]}))[0] == 200
    assert (await call(api, "GET", f"/v1/jobs/{asked['id']}"))[1]["plugins"] == said
    again = await call(api, "POST", "/v1/jobs", {"items": [asked]})
    assert again[1]["items"][0]["result"] == "unchanged"
    other = job(plugins={"cost_centre": {"centre": "AC"}})
    assert (await call(api, "POST", "/v1/jobs", {"items": [other]}))[0] == 409


@pytest.mark.parametrize(
    ("plugins", "path", "message"),
    [
        (None, "plugins.cost_centre.centre", "is missing"),
        ({}, "plugins.cost_centre.centre", "is missing"),
        ({"centre": "ab"}, "plugins.cost_centre.centre", "should match pattern"),
        ({"centre": 5}, "plugins.cost_centre.centre", "valid string"),
        ({"centre": "AB", "sharse": {}}, "plugins.cost_centre.sharse", "unknown field"),
        ({"centre": "AB", "shares": {"x": 1}}, "plugins.cost_centre.shares", "add up to 100"),
        ({"centre": "AB", "shares": {"x": "1"}}, "plugins.cost_centre.shares.x", "valid integer"),
        ({"centre": "AB", "until": "never"}, "plugins.cost_centre.until", "valid date"),
        ({"centre": "A\0"}, "plugins.cost_centre", "NUL"),
        ({"centre": "\ud800"}, "plugins.cost_centre", "valid Unicode"),
        ({"centre": "A" * 5000}, "plugins.cost_centre", "longer than 4096"),
        ({"centre": json.loads("[" * 30 + "]" * 30)}, "plugins.cost_centre", "nested deeper"),
        ({"centre": 1e400}, "plugins.cost_centre", "number"),
    ],
)
async def test_an_invalid_plugin_field_is_refused_at_its_path(
    api: Api, plugins: dict[str, Any] | None, path: str, message: str
) -> None:
    fields = {} if plugins is None else {"plugins": {"cost_centre": plugins}}
    body = json.dumps({"items": [job(**fields)]}).replace("Infinity", "1e400")
    response = await api.client.post(
        "/v1/jobs", data=body, headers={"Content-Type": "application/json"}
    )
    assert response.status == 422
    problems = (await response.json())["details"]["problems"]
    assert [one["path"] for one in problems] == [f"items[0].{path}"]
    assert message in problems[0]["message"]


async def test_a_field_without_plugin_is_an_unknown_field(api: Api) -> None:
    said = {"cost_centre": {"centre": "AB"}, "cost_center": {"centre": "AB"}, "task": {}}
    status, response = await call(api, "POST", "/v1/jobs", {"items": [job(plugins=said)]})
    assert status == 422
    assert sorted((one["path"], one["message"]) for one in response["details"]["problems"]) == [
        ("items[0].plugins.cost_center", "unknown field"),
        ("items[0].plugins.task", "unknown field"),
    ]


async def test_an_exception_in_a_plugins_model_is_a_plugin_failure(api: Api) -> None:
    asked = job(plugins={"cost_centre": {"centre": "AB", "shares": {"boom": 1}}})
    body = {"items": [asked], "mode": "best_effort"}
    status, response = await call(api, "POST", "/v1/jobs", body)
    assert status == 200
    assert "the plugin cost_centre failed" in response["items"][0]["problems"][0]["message"]


async def test_fields_of_plugins_are_in_the_openapi_document(api: Api) -> None:
    _, document = await call(api, "GET", "/v1/openapi.json")
    schemas = document["components"]["schemas"]
    assert schemas["Job"]["properties"]["plugins"] == {
        "type": "object",
        "additionalProperties": False,
        "description": "Fields for third-party plugins, by plugin name.",
        "required": ["cost_centre"],
        "properties": {"cost_centre": {"$ref": "#/components/schemas/plugins.cost_centre"}},
    }
    assert "plugins" in schemas["Job"]["required"]
    assert schemas["plugins.cost_centre"]["properties"]["centre"]["pattern"] == "^[A-Z]{2}$"
