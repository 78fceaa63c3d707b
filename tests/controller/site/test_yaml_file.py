from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from controller.site.kinds import Kinds
from controller.site.owner_shares import OwnersFile
from controller.site.product_list import Catalogue
from controller.site.yaml_file import read_declared


@pytest.mark.parametrize(
    ("model", "text", "problems"),
    [
        (OwnersFile, "quota: {cpu: many}", ["quota.cpu: should be a whole number"]),
        (OwnersFile, "quota: {cpu: -1}", ["quota.cpu: should be"]),
        (OwnersFile, "quota: {cpu: 1.5}", ["quota.cpu: should be"]),
        (OwnersFile, "queue: {capability: {cpu: 1 core}}", ["queue.capability.cpu: should be"]),
        (
            OwnersFile,
            "claims: [{name: a, size: [], storage_class: -}]",
            ["claims[0].size: should be", "claims[0].storage_class: String"],
        ),
        (
            Catalogue,
            "products: {a: {cpu: 1, memory: 1Gi, node_labels: {b: -, c: [-]}}}",
            ["products.a.node_labels.b: String", "products.a.node_labels.c[0]: String"],
        ),
        (
            Kinds,
            "kinds: {a: {parameters: {p: {type: text, default: 2026-01-01}}}}",
            ["kinds.a.parameters.p.default: should be a text, a number or a boolean"],
        ),
    ],
)
def test_each_problem_of_a_file_is_named_once_by_the_path_in_the_file(
    tmp_path: Path, model: type[BaseModel], text: str, problems: list[str]
) -> None:
    file = tmp_path / "declared.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(problems[0])) as raised:
        read_declared(file, model)
    found = str(raised.value).split("; ")
    assert len(found) == len(problems), found
    for one, beginning in zip(found, problems, strict=True):
        assert one.startswith(beginning)
