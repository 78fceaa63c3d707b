"""Tests batch templates: bounded substitution of variables, and every error with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controller.jobs.spec.problems import MOST_PROBLEMS, JobRejected, Problem, problems_of
from controller.jobs.submission import batch_template
from controller.jobs.submission.batch_template import BatchRequest, Template, TooLarge, items_in


def make_jobs(template: dict[str, Any], **variables: Any) -> list[dict[str, Any]]:
    asked = BatchRequest.model_validate({"id": "b", "template": template} | variables)
    made = Template(asked.template, asked.names()).expand(asked.id, asked.variables())
    return [dict(one.job) for one in made]


def fill(text: Any, **values: Any) -> Any:
    """Return the result for *text* in a field that takes a value of any type."""
    (job,) = make_jobs({"plugins": {"p": {"x": text}}}, array=[values])
    return job["plugins"]["p"]["x"]


def refusals(template: dict[str, Any], **variables: Any) -> dict[str, str]:
    with pytest.raises(JobRejected) as refused:
        make_jobs(template, **variables)
    return {one.path: one.message for one in refused.value.problems}


def unread(**fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as refused:
        BatchRequest.model_validate({"id": "b", "template": {}} | fields)
    return [(one.path, one.message) for one in problems_of(refused.value)]


@pytest.mark.parametrize("value", [3, 0.5, True, "x", "", -1, 1e-7])
def test_a_string_that_is_one_variable_becomes_its_value_with_its_type(value: Any) -> None:
    found = fill("{{v}}", v=value)
    assert (found, type(found)) == (value, type(value))
    assert fill(["{{ v }}", {"y": "{{v}}"}], v=value) == [value, {"y": value}]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--n={{n}}", "--n=3"),
        ("{{n}} ", "3 "),
        ("{{n}}{{t}}", "3a b"),
        ("{{f}}/{{yes}}/{{batch}}-{{index}}", "0.001/true/b-0"),
        ("{{{{n}}", "{{n}}"),
        ("{{{{{{n}}", "{{3"),
        ('{"n":{{n}}}', '{"n":3}'),
        ("{{{n}}}", "{3}"),
        ("$HOME ${n} {n} $(n) %n% }} {", "$HOME ${n} {n} $(n) %n% }} {"),
        ("{{mark}}", "{{n}}"),
        ("{{mark}}!", "{{n}}!"),
    ],
)
def test_variables_within_a_text_are_written_as_json_writes_them(text: str, filled: str) -> None:
    assert fill(text, n=3, t="a b", f=0.001, yes=True, mark="{{n}}") == filled


def test_text_fields_get_text_and_other_fields_the_typed_value() -> None:
    template = {
        "id": "{{n}}",
        "labels": {"n": "{{n}}"},
        "replicas": "{{n}}",
        "invocation": {"command": ["run", "{{n}}"], "environment": {"N": "{{n}}"}},
        "tasks": [{"name": "{{n}}", "replicas": "{{n}}"}],
        "parameters": {
            "t": {"type": "text", "value": "{{n}}"},
            "i": {"type": "integer", "value": "{{n}}"},
            "labels": {"type": "integer", "value": "{{n}}"},
        },
    }
    (job,) = make_jobs(template, array=[{"n": 3}])
    assert job == {
        "id": "3",
        "labels": {"n": "3"},
        "replicas": 3,
        "invocation": {"command": ["run", "3"], "environment": {"N": "3"}},
        "tasks": [{"name": "3", "replicas": 3}],
        "parameters": {
            "t": {"type": "text", "value": "3"},
            "i": {"type": "integer", "value": 3},
            "labels": {"type": "integer", "value": 3},
        },
    }


def test_field_names_are_not_expanded_and_a_missing_id_is_generated() -> None:
    first, second = make_jobs({"labels": {"{{n}}": "x"}}, count=2)
    assert (first["id"], second["id"]) == ("b-0", "b-1")
    assert first["labels"] == {"{{n}}": "x"}


def test_of_a_matrix_the_last_variable_changes_fastest() -> None:
    jobs = make_jobs({"name": "{{a}}{{b}}"}, matrix={"a": [1, 2, 3], "b": ["x", "y"]})
    assert [one["name"] for one in jobs] == ["1x", "1y", "2x", "2y", "3x", "3y"]


def test_every_error_of_a_template_is_reported_with_its_path() -> None:
    template = {
        "image": "{{imag}}",
        "invocation": {"command": ["ok", "{{lr}} {{1}} {{", "{{lr}}"], "environment": {"X": "{{y"}},
    }
    mark = "'{{' begins no variable; '{{{{' stands for the text '{{'"
    assert refusals(template, array=[{"lr": 1}]) == {
        "template.image": "there is no variable 'imag'; there are batch, index, lr",
        "template.invocation.command[1]": mark,
        "template.invocation.environment.X": mark,
    }


def test_variables_are_refused_in_secrets() -> None:
    for kind, field in (("secret", "value"), ("licence", "key"), ("{{kind}}", "value")):
        template = {"parameters": {"t": {"type": kind, field: "x{{v}}"}}}
        assert list(refusals(template, array=[{"v": "s3cret", "kind": "secret"}])) == [
            f"template.parameters.t.{field}"
        ]
    # A secret that is the same for all jobs is no variable, and other jobs may use the field.
    same: dict[str, Any] = {
        "parameters": {
            "t": {"type": "secret", "value": "{{{{x"},
            "u": {"type": "integer", "value": "{{v}}"},
            "l": ["{{v}}"],
        }
    }
    (job,) = make_jobs(same, array=[{"v": 1}])
    assert job["parameters"]["t"]["value"] == "{{x"


def test_a_request_has_one_item_source_and_unreserved_variables() -> None:
    one_of = [("", "needs exactly one of count, array and matrix")]
    assert unread() == one_of
    assert unread(count=1, array=[{}]) == one_of
    assert unread(count=0)[0][0] == "count"
    assert unread(matrix={"a": []})[0][0] == "matrix.a"
    assert unread(matrix={})[0][0] == "matrix"
    assert unread(matrix={"index": [1]}) == [
        ("matrix", "index is a built-in variable of every item")
    ]
    assert unread(array=[{"a": 1}, {"b": 1}]) == [
        ("array", "item 1 has other variables than the first one")
    ]
    assert unread(array=[{"a": None}])[0] == (
        "array[0].a", "should be a text, a number, true or false"
    )  # fmt: skip
    wrong = [[1], {"a": 1}, "\0", "\ud800", "x" * 4097, 2**63, float("inf"), float("nan")]
    found = unread(matrix={"a": [1, *wrong]})
    assert [path for path, _ in found] == [f"matrix.a[{n}]" for n in range(1, len(wrong) + 1)]
    assert unread(matrix={f"v{n}": [1] for n in range(17)})[0][0] == "matrix"
    assert unread(count=1, id="b" * 37)[0][0] == "id"
    assert unread(count=1, matrx={"a": [1]}) == [("matrx", "unknown field")]


def test_equivalent_bodies_have_the_same_hash() -> None:
    def body(text: str) -> str:
        return BatchRequest.model_validate(json.loads(text)).body()

    one = body('{"id":"b","template":{"image":"x","a":{"c":1,"d":null}},"count":2}')
    same = '{"count":2,"mode":"atomic","template":{"a":{"d":null,"c":1},"image":"x"},"id":"b"}'
    assert body(same) == one
    for other in ('"count":3', '"count":2,"mode":"best_effort"'):
        changed = f'{{"id":"b","template":{{"image":"x","a":{{"c":1,"d":null}}}},{other}}}'
        assert body(changed) != one


def test_items_are_counted_before_expansion() -> None:
    assert items_in({"matrix": {"a": [1] * 100, "b": [1] * 11}}) == 1100
    assert items_in({"matrix": {f"v{n}": [1, 2] for n in range(100_000)}}) > 10**6
    assert items_in({"matrix": {"a": [], "b": [1] * 2000}}) == 2000
    assert items_in({"array": [None] * 5}) == 5
    assert items_in({"count": 7}) == 7
    for odd in ({}, {"matrix": 5}, {"matrix": {"a": 5}, "array": 3}, {"count": "x"}):
        assert items_in(odd) <= 1


def test_the_total_size_is_bounded_before_expansion() -> None:
    long = {"invocation": {"command": ["x" * 9000]}}
    with pytest.raises(TooLarge):
        make_jobs(long, count=1000)
    assert len(make_jobs(long, count=100)) == 100
    # A short template may repeat a long value many times.
    often = {"invocation": {"command": ["{{v}}" * 3000]}}
    with pytest.raises(TooLarge):
        make_jobs(often, array=[{"v": "x" * 4096}])


def test_a_deep_or_large_template_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep: Any = "x"
    for _ in range(600):
        deep = [deep]
    assert list(refusals({"labels": deep}, count=1).values()) == ["is nested deeper than 32 levels"]
    monkeypatch.setattr(batch_template, "MOST_VALUES", 50)
    assert refusals({"plugins": [1] * 60}, count=1) == {"template": "has more than 50 values"}
    assert make_jobs({"plugins": [1] * 40}, count=1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("{}ab $", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab{}"), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_escaped_braces_are_kept_literally(value: Any) -> None:
    def escaped(node: Any) -> Any:
        if isinstance(node, str):
            return node.replace("{{", "{{{{")
        if isinstance(node, list):
            return [escaped(one) for one in node]
        if isinstance(node, dict):
            return {name: escaped(one) for name, one in node.items()}
        return node

    assert fill(escaped(value), a=1) == value


@pytest.mark.parametrize("mark", ["{{index}}", "{{{{", "x {{n}}"])
def test_a_text_of_nothing_but_variables_is_refused(mark: str) -> None:
    found = refusals({"name": mark * (batch_template.MOST_VALUES + 1)}, array=[{"n": 1}])
    assert found == {"template": "has more than 20000 values"}


@pytest.mark.parametrize("mark", ["{{no}}", "{{ "])
def test_parsing_of_an_invalid_text_stops_at_the_reported_errors(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Problem] = []

    def noted(path: str, message: str) -> Problem:
        made.append(Problem(path, message))
        return made[-1]

    monkeypatch.setattr(batch_template, "Problem", noted)
    with pytest.raises(JobRejected) as refused:
        make_jobs({"name": mark * 5000}, count=1)
    assert len(refused.value.problems) == len(made) == MOST_PROBLEMS
