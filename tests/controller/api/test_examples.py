"""Tests that the API can parse the request examples in docs/controller-api.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.controller.api.conftest import Api

DOCS = (Path(__file__).parents[3] / "docs/controller-api.md").read_text("utf-8")
# Problems that arise because only the example's deployment declares these names.
DECLARED = re.compile(r"there is no (volume|such (product|tool))|has no such priority|a runtime")


def examples() -> list[Any]:
    """Return the JSON examples; a block with several documents yields each of them."""
    blocks = re.findall(r"^```json\n(.*?)^```", DOCS, re.DOTALL | re.MULTILINE)
    return [json.loads(one) for block in blocks for one in block.split("\n\n")]


def requests() -> list[tuple[str, Any]]:
    """Return the paths and bodies of the examples that submit jobs."""
    found = []
    for one in examples():
        if "template" in one:
            found.append(("/v1/batches", one))
        elif "image" in one and "owner" in one:
            found.append(("/v1/jobs", {"items": [one]}))
        elif "image" in one.get("items", [{}])[0]:
            found.append(("/v1/jobs", one))
    return found


@pytest.mark.parametrize("number", range(len(requests())))
async def test_documented_requests_are_accepted(api: Api, number: int) -> None:
    path, body = requests()[number]
    response = await api.client.post(path, json=body)
    said = await response.json()
    problems = said.get("details", {}).get("problems", [])
    if response.status not in (200, 201):
        assert response.status == 422, said
        assert [one for one in problems if not DECLARED.search(one["message"])] == []
    assert len(problems) == len({(one["path"], one["message"]) for one in problems})


def test_the_docs_contain_several_requests() -> None:
    assert len(requests()) >= 4
