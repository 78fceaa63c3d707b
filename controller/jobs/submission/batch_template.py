"""Makes the jobs of a batch from one template and the variables of each item. No I/O.

``{{name}}`` within a string of the template is replaced by a variable; ``{{{{`` stands for ``{{``.
Nothing is evaluated, inserted text is not expanded again, and field names are not expanded. A
string that is exactly one variable becomes the variable's value with its type, so that
``"replicas": "{{n}}"`` is a number; in fields that only hold text it is text.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from controller.jobs.spec.field_types import ParameterName, Size, check_text
from controller.jobs.spec.model import MOST_PARAMETERS
from controller.jobs.spec.parameters import SECRET_FIELDS, DataPolicy, Strict
from controller.jobs.spec.problems import MOST_PROBLEMS, JobRejected, Problem, make_path
from controller.jobs.submission.checking import Mode

MOST_ITEMS: Final = 1000
MOST_DIMENSIONS: Final = 16
MOST_EXPANDED: Final = 8 << 20
"""Characters of all jobs of a batch and their variables, as JSON."""

MOST_VALUES: Final = 20_000
"""Values of a template, and variables in its texts. A larger template is no job, and would take
long to check.
"""
DEEPEST: Final = 32
LONGEST_VALUE: Final = 4096
OWN: Final = ("batch", "index")
"""Variables of every item: the batch's id, and the item's index, from 0."""

_INT64: Final = 2**63
BATCH_ID: Final = r"^[a-z0-9]([-a-z0-9]{0,34}[a-z0-9])?$"
DATA_SETS: Final = ("file", "directory")
"""Types of parameters that have a policy."""
_DEFAULT_ID: Final = "{{batch}}-{{index}}"
# A brace before a variable stands for itself.
_MARK: Final = re.compile(r"{{{{|{{ *([A-Za-z_][A-Za-z0-9_]*) *}}|{{(?!{)")
_TEXT_FIELDS: Final = frozenset(
    {
        "id", "owner", "name", "labels", "kind", "image", "pull_credential", "product",
        "framework", "queue", "priority", "runtime", "invocation", "output", "links",
    }
)  # fmt: skip

Value = str | int | float | bool


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        check_text(value)
        if len(value) > LONGEST_VALUE:
            raise ValueError(f"is longer than {LONGEST_VALUE} characters")
    elif not isinstance(value, int | float):
        raise ValueError("should be a text, a number, true or false")
    elif isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError("does not fit into 64 bits")
    elif not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value


Variable = Annotated[
    Any,
    AfterValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"], "maxLength": LONGEST_VALUE}),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
Variables = Annotated[dict[Name, Variable], Field(max_length=MOST_DIMENSIONS)]


class DataSetPolicy(Strict):
    """The default access of a batch's jobs to a data set."""

    policy: DataPolicy
    size_limit: Size | None = None


class BatchRequest(Strict):
    """Jobs of one template: a number, one for each set of variables, or one for each combination.

    The last variable of ``matrix`` changes fastest. Everything but variables is the same in all
    jobs.
    """

    id: Annotated[str, Field(pattern=BATCH_ID)]
    mode: Mode = "atomic"
    template: Annotated[
        dict[str, Any],
        Field(description="A job, in whose strings `{{name}}` stands for a variable."),
    ]
    data: dict[ParameterName, DataSetPolicy] = Field(
        default_factory=dict,
        max_length=MOST_PARAMETERS,
        description="Policies of data sets, by the parameters that name them.",
    )
    count: Annotated[int, Field(ge=1, le=MOST_ITEMS)] | None = None
    array: Annotated[list[Variables], Field(min_length=1, max_length=MOST_ITEMS)] | None = None
    matrix: (
        Annotated[
            dict[Name, Annotated[list[Variable], Field(min_length=1, max_length=MOST_ITEMS)]],
            Field(min_length=1, max_length=MOST_DIMENSIONS),
        ]
        | None
    ) = None

    @field_validator("array")
    @classmethod
    def _are_alike(cls, value: list[dict[str, Value]] | None) -> list[dict[str, Value]] | None:
        for index, one in enumerate(value or ()):
            _refuse_own(one)
            if value is not None and one.keys() != value[0].keys():
                raise ValueError(f"item {index} has other variables than the first one")
        return value

    @field_validator("matrix")
    @classmethod
    def _is_free(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        _refuse_own(value or {})
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(one is not None for one in (self.count, self.array, self.matrix)) != 1:
            raise ValueError("needs exactly one of count, array and matrix")
        return self

    def body(self) -> str:
        """Return the whole request in a canonical form."""
        said = {name: getattr(self, name) for name in self.model_fields_set | {"mode"}}
        return json.dumps(said, sort_keys=True, default=_as_json)

    def data_problems(self) -> Iterator[Problem]:
        """Find policies of parameters that are no data sets of the template."""
        parameters = self.template.get("parameters")
        for name in self.data:
            own = parameters.get(name) if isinstance(parameters, dict) else None
            kind = own.get("type") if isinstance(own, dict) else None
            if not isinstance(kind, str) or ("{{" not in kind and kind not in DATA_SETS):
                yield Problem(make_path(["data", name]), "the template has no such data set")

    def inherit(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return *job*, with the batch's policies for data sets that name none."""
        parameters = job.get("parameters")
        if not self.data or not isinstance(parameters, dict):
            return job
        inherited = {
            name: _as_json(one) | parameters[name]
            for name, one in self.data.items()
            if isinstance(parameters.get(name), dict) and "policy" not in parameters[name]
        }
        return {**job, "parameters": {**parameters, **inherited}}

    def names(self) -> list[str]:
        """Return the names of the variables, which are the same for all items."""
        return list(self.array[0] if self.array is not None else self.matrix or ())

    def variables(self) -> list[dict[str, Value]]:
        """Return the variables of each item, without :data:`OWN`."""
        if self.array is not None:
            return list(self.array)
        if self.matrix is not None:
            each = itertools.product(*self.matrix.values())
            return [dict(zip(self.matrix, values, strict=True)) for values in each]
        return [{} for _ in range(self.count or 0)]


def _as_json(policy: DataSetPolicy) -> dict[str, Any]:
    return policy.model_dump(mode="json", exclude_none=True)


def items_in(content: Mapping[str, Any]) -> int:
    """Return how many items a request has, before it is validated."""
    count, array, matrix = (content.get(name) for name in ("count", "array", "matrix"))
    if isinstance(matrix, dict):
        dimensions = (len(one) for one in matrix.values() if isinstance(one, list))
        total = 1
        for size in dimensions:
            total = min(total * size, 10**9) if size else total
        return total
    if isinstance(array, list):
        return len(array)
    return count if isinstance(count, int) else 0


def _refuse_own(given: Mapping[str, Any]) -> None:
    for name in OWN:
        if name in given:
            raise ValueError(f"{name} is a built-in variable of every item")


class TooLarge(ValueError):
    """The jobs of a batch exceed a limit; the message names it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its variables, and its job, which is not validated yet."""

    parameters: Mapping[str, Value]
    job: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Text:
    """A string with variables: literal parts and variable names, alternating."""

    parts: tuple[str, ...]
    typed: bool


@dataclass(frozen=True, slots=True)
class _Node:
    """An object or an array with variables in it."""

    members: dict[str, Any] | list[Any]


class Template:
    """A parsed template.

    Args:
        template: The template as it was sent.
        names: The names of the variables, beside :data:`OWN`.

    Raises:
        JobRejected: With every place that cannot be expanded.
    """

    def __init__(self, template: Mapping[str, Any], names: Sequence[str]) -> None:
        self._names = frozenset((*OWN, *names))
        self._problems: list[Problem] = []
        self._left = MOST_VALUES
        self._varied: list[tuple[str, str]] = []
        self._texts = _text_parameters(template)
        self._root = self._compile({"id": _DEFAULT_ID, **template}, ())
        if self._left < 0:
            raise JobRejected([Problem("template", f"has more than {MOST_VALUES} values")])
        if self._problems:
            raise JobRejected(self._problems)
        self._length = len(json.dumps(template))

    def expand(self, batch_id: str, variables: Sequence[Mapping[str, Value]]) -> Iterator[Item]:
        """Yield the item of each of *variables*, in order.

        Raises:
            TooLarge: If all items together exceed :data:`MOST_EXPANDED`.
            JobRejected: If one would put a variable, whose value is shown, into a secret.
        """
        total = self._length * len(variables)
        _refuse_beyond(total)
        for index, given in enumerate(variables):
            filler = _Filler({"batch": batch_id, "index": index, **given})
            job: dict[str, Any] = filler.fill(self._root)
            total += filler.added
            _refuse_beyond(total)
            self._refuse_secrets(job)
            yield Item(given, job)

    def _compile(self, node: Any, path: tuple[str | int, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            return node
        if isinstance(node, str):
            return self._compile_text(node, path)
        if not isinstance(node, dict | list):
            return node
        if len(path) >= DEEPEST:
            self._note(path, f"is nested deeper than {DEEPEST} levels")
            return node
        if isinstance(node, list):
            items = [self._compile(one, (*path, index)) for index, one in enumerate(node)]
            changed = any(new is not old for new, old in zip(items, node, strict=True))
            return _Node(items) if changed else node
        members = {name: self._compile(one, (*path, name)) for name, one in node.items()}
        changed = any(members[name] is not one for name, one in node.items())
        return _Node(members) if changed else node

    def _compile_text(self, text: str, path: tuple[str | int, ...]) -> str | _Text:
        if "{{" not in text:
            return text
        parts, literal, place = list[str](), "", 0
        for mark in _MARK.finditer(text):
            self._left -= 1
            if self._left < 0 or len(self._problems) >= MOST_PROBLEMS:
                return text
            literal += text[place : mark.start()]
            place, name = mark.end(), mark[1]
            if mark[0] == "{{{{":
                literal += "{{"
            elif name is None:
                self._note(path, "'{{' begins no variable; '{{{{' stands for the text '{{'")
            elif name not in self._names:
                known = ", ".join(sorted(self._names))
                self._note(path, f"there is no variable {name[:64]!r}; there are {known}")
            else:
                parts += (literal, name)
                literal = ""
        literal += text[place:]
        if not parts:
            return literal
        match path:
            case ("parameters", str(name), str(field), *_):
                self._varied.append((name, field))
        return _Text((*parts, literal), typed=not self._is_text(path))

    def _is_text(self, path: tuple[str | int, ...]) -> bool:
        match path:
            case ("tasks", _, str(field), *_) | (str(field), *_) if field in _TEXT_FIELDS:
                return True
            case ("parameters", str(name), *_):
                return name in self._texts
            case _:
                return False

    def _note(self, path: tuple[str | int, ...], message: str) -> None:
        if len(self._problems) >= MOST_PROBLEMS:
            return
        self._problems.append(Problem(make_path(("template", *path)), message))

    def _refuse_secrets(self, job: Mapping[str, Any]) -> None:
        for name, field in self._varied:
            kind = job["parameters"][name].get("type")
            if isinstance(kind, str) and SECRET_FIELDS.get(kind) == field:
                path = make_path(("template", "parameters", name, field))
                text = "a secret holds no variable: the values of variables are shown"
                raise JobRejected([Problem(path, text)])


class _Filler:
    """Expands a template with the values of one item; ``added`` counts their characters."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
        self._texts = {name: _as_text(value) for name, value in values.items()}
        self.added = sum(map(len, self._texts.values()))

    def fill(self, node: Any) -> Any:
        """Return *node* with values in place of variables."""
        if isinstance(node, _Text):
            return self._fill_text(node)
        if not isinstance(node, _Node):
            return node
        if isinstance(node.members, list):
            return [self.fill(one) for one in node.members]
        return {name: self.fill(one) for name, one in node.members.items()}

    def _fill_text(self, text: _Text) -> Value:
        names = text.parts[1::2]
        self.added += sum(len(self._texts[name]) for name in names)
        if text.typed and len(text.parts) == 3 and not (text.parts[0] or text.parts[2]):
            return self._values[names[0]]
        # A hostile template may repeat a long value many times: no text is built that is longer
        # than all jobs together may be.
        if self.added > MOST_EXPANDED:
            return ""
        filled = (self._texts[part] if place % 2 else part for place, part in enumerate(text.parts))
        return "".join(filled)


def _text_parameters(template: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of parameters whose values are texts."""
    parameters = template.get("parameters")
    if not isinstance(parameters, dict):
        return frozenset()
    return frozenset(
        name
        for name, one in parameters.items()
        if isinstance(one, dict) and one.get("type") in ("text", "enumeration")
    )


def _refuse_beyond(total: int) -> None:
    if total > MOST_EXPANDED:
        raise TooLarge(f"The jobs of a batch have at most {MOST_EXPANDED} characters together.")


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)
