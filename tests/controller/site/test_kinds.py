from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.site.kinds import Kinds, built_in_kinds, read_kinds
from tests.controller.samples import make_defaults, make_job

DISTILLATION = """
kinds:
  conversion: null
  distillation:
    framework: pytorch
    frameworks: [pytorch, ray]
    artefacts: true
    closed: true
    parameters:
      teacher: {type: [artefacts, directory], required: true}
      temperature: {type: floating, default: 2, minimum: 0.5, maximum: 10}
      method: {type: enumeration, options: [soft, hard], default: soft}
      layers: {type: [integer, text]}
"""


@pytest.fixture
def declared(tmp_path: Path) -> Kinds:
    return read_kinds(write(tmp_path, DISTILLATION))


def write(folder: Path, text: str) -> str:
    (folder / "kinds.yaml").write_text(text)
    return str(folder / "kinds.yaml")


def paths(kinds: Kinds, **fields: Any) -> set[str]:
    return {one.path for one in kinds.problems(make_job(**fields))}


def test_three_built_in_kinds_refuse_values_of_wrong_type_or_range() -> None:
    kinds = built_in_kinds()
    assert set(kinds.kinds) == {"training", "quantization", "conversion"}
    assert make_defaults().kinds == kinds
    parameters = {
        "epochs": {"type": "integer", "value": [3, 0]},
        "learning_rate": {"type": "integer", "value": 1},
        "seed": {"type": "text", "value": "7"},
        "of_its_own": {"type": "text", "value": "x"},
    }
    found = paths(kinds, kind="training", parameters=parameters)
    assert found == {"parameters.epochs.value[1]", "parameters.seed.type"}
    bits = {"bits": {"type": "integer", "value": 33}}
    assert paths(kinds, kind="quantization", parameters=bits) == {"parameters.bits.value"}
    assert paths(kinds, kind="conversion", framework="mpi") == set()


def test_an_undeclared_kind_is_accepted_unless_kinds_are_closed(declared: Kinds) -> None:
    assert (
        paths(declared, kind="conversion", parameters={"opset": {"type": "text", "value": "x"}})
        == set()
    )
    assert paths(Kinds(kinds=declared.kinds, closed=True), kind="conversion") == {"kind"}
    assert paths(Kinds(closed=True)) == set()


def test_a_configured_kind_defines_parameters_and_defaults(declared: Kinds) -> None:
    assert set(declared.kinds) == {"training", "quantization", "distillation"}
    parameters = {
        "temperature": {"type": "floating", "value": 11.0},
        "method": {"type": "enumeration", "value": ["soft", "x"], "options": ["soft", "x"]},
        "other": {"type": "boolean", "value": True},
    }
    assert paths(declared, kind="distillation", framework="mpi", parameters=parameters) == {
        "framework", "output", "parameters.teacher", "parameters.temperature.value",
        "parameters.method.value[1]", "parameters.other",
    }  # fmt: skip


def test_a_job_inherits_omitted_fields_from_its_kind(declared: Kinds) -> None:
    kind = declared.kinds["distillation"]
    given = {"temperature": {"type": "floating", "value": 1.0}}
    defaults = kind.defaults(make_job(kind="distillation", parameters=given))
    (method,) = defaults.values()
    assert (list(defaults), method.type) == (["method"], "enumeration")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "not YAML"),
        ("- a", "must hold fields"),
        ("kinds: [a]", "kinds"),
        ("kinds: {A: {}}", "kinds.A"),
        ("kinds: {a: {colour: red}}", "kinds.a.colour: unknown field"),
        ("kinds: {a: {framework: ray, frameworks: [mpi]}}", "one of the frameworks"),
        ("kinds: {a: {parameters: {p: {type: x}}}}", "kinds.a.parameters.p.type"),
        ("kinds: {a: {parameters: {p: {type: text, minimum: 1}}}}", "minimum"),
        ("kinds: {a: {parameters: {p: {type: integer, minimum: .nan}}}}", "minimum"),
        ("kinds: {a: {parameters: {p: {type: integer, options: [a]}}}}", "options"),
        ("kinds: {a: {parameters: {p: {type: integer, default: x}}}}", "not of the type integer"),
        ("kinds: {a: {parameters: {p: {type: integer, default: 1, minimum: 2}}}}", "less than 2"),
        ("kinds: {a: {parameters: {p: {type: integer, default: 1, required: true}}}}", "required"),
        ("kinds: {a: {parameters: {p: {type: enumeration, default: x}}}}", "options"),
        ("kinds: {a: {parameters: {p: {type: file, default: /home/x}}}}", "not of the type file"),
        ("kinds: {a: {parameters: {p: {type: [secret, text], default: x}}}}", "cannot have a"),
    ],
)  # fmt: skip
def test_every_error_is_reported(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace(".", r"\.")):
        read_kinds(write(tmp_path, text))


def test_a_file_without_kinds_keeps_the_built_in_ones(tmp_path: Path) -> None:
    assert read_kinds(write(tmp_path, "closed: true")).kinds == built_in_kinds().kinds
    with pytest.raises(ValueError, match="cannot be read"):
        read_kinds(str(tmp_path / "none"))
