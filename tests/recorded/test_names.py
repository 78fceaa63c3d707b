"""Tests that no name that others read or store is gone since b9911c7; new names are allowed.

If a name must go all the same, the old name works beside the new one for one minor version, and
CHANGELOG.md says so. Then, and only then, the old name is removed from the recorded list.
"""

from __future__ import annotations

import pytest

from controller.plugins import PLUGINS
from tests.recorded.names import (
    api_gone,
    columns_of_today,
    entry_points_of_today,
    gone,
    literals_of_today,
    metrics_in,
    recorded,
    redis_keys_of_today,
    refusals_of_today,
    settings_of_today,
)
from tests.recorded.recording import Recording


def test_every_setting_is_still_read() -> None:
    assert [*gone(recorded("settings"), settings_of_today())] == []


def test_every_column_is_still_there() -> None:
    assert [*gone(recorded("columns"), columns_of_today())] == []


def test_every_refusal_of_the_gateway_has_its_code_and_status() -> None:
    assert [*gone(recorded("gateway_refusals"), refusals_of_today())] == []


def test_the_keys_in_redis_have_their_names() -> None:
    assert [*gone(recorded("redis_keys"), redis_keys_of_today())] == []


def test_every_program_and_plugin_has_its_name() -> None:
    assert [*gone(recorded("entry_points"), entry_points_of_today())] == []
    settings = Recording.read("sqlite").known["settings"]
    then = set(settings["FUMAROLE_CONTROLLER_PLUGINS"].split(","))
    assert then - {one.name for one in PLUGINS} == {"cost_centre"}


def test_every_published_name_still_exists() -> None:
    words = {kind: set(those) for kind, those in recorded("words").items()}
    today = literals_of_today()
    assert {kind: those - today for kind, those in words.items() if those - today} == {}


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"b": 1}, ["/a"]),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, ["/a/b: 'x' is 'y'"]),
        ({"enum": ["x", "y"]}, {"enum": ["z", "y"]}, ['/enum: "x"']),
        ([{"$ref": "a"}], [{"$ref": "b"}, {"$ref": "a", "more": 1}], []),
    ],
)
def test_a_removed_name_is_detected(before: object, now: object, found: list[str]) -> None:
    assert [*gone(before, now)] == found


def test_a_new_required_field_is_detected() -> None:
    before = recorded("openapi")
    now = recorded("openapi")
    assert [*api_gone(before, now)] == []
    now["components"]["schemas"]["Owner"]["required"].append("project")
    now["components"]["schemas"]["JobView"] = {}
    del now["paths"]["/v1/jobs"]["post"]
    now["components"]["schemas"]["Job"]["properties"].pop("labels")
    assert {
        "/paths//v1/jobs/post", "Owner.project must be said now",
        "/components/schemas/Job/properties/labels",
    } <= set(api_gone(before, now))  # fmt: skip


def test_metrics_are_read_with_their_labels() -> None:
    page = '# TYPE fumarole_a_total counter\nfumarole_a_total{x="1",y="2"} 3.0\n'
    page += "# TYPE fumarole_b gauge\nfumarole_b 1.0\n# TYPE fumarole_b_created gauge\n"
    assert metrics_in(page) == {
        "fumarole_a_total": {"type": "counter", "labels": ["x", "y"]},
        "fumarole_b": {"type": "gauge", "labels": []},
    }
