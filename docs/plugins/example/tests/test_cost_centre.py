"""Tests of the plugin, without a cluster."""

from __future__ import annotations

import asyncio

import pytest
from cost_centre import CostCentrePlugin

from controller.plugin_api import JobRejected
from controller.plugin_api.testing import Planned, make_job, plan_job

SETTINGS = {"FUMAROLE_PLUGIN_COST_CENTRE_OPEN": "physics,maths"}


def plan(**fields: object) -> Planned:
    """Return the plan for a job with *fields* under ``plugins.cost_centre``."""
    job = make_job(plugins={"cost_centre": fields})
    return asyncio.run(plan_job(CostCentrePlugin, job, settings=SETTINGS))


def test_a_job_is_booked_on_its_centre() -> None:
    planned = plan(centre="maths", remark="a thesis")
    (booking,) = planned.companions
    assert booking.manifest["kind"] == "Booking"
    assert booking.manifest["spec"] == {
        "centre": "maths",
        "currency": "EUR",
        "user": "ada",
        "remark": "a thesis",
    }
    (task,) = planned.manifest["spec"]["tasks"]
    assert task["template"]["metadata"]["labels"]["billing.example.com/centre"] == "maths"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "plugins.cost_centre.centre: is missing"),
        ({"centre": "alchemy"}, "plugins.cost_centre.centre: is not open"),
        ({"centre": "maths", "remarks": "x"}, "plugins.cost_centre.remarks: unknown field"),
    ],
)
def test_a_mistake_is_refused_with_its_path(fields: dict[str, str], problem: str) -> None:
    with pytest.raises(JobRejected) as caught:
        plan(**fields)
    assert [str(one) for one in caught.value.problems] == [problem]
