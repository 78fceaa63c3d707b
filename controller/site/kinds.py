"""The kinds of jobs: the parameters of each, and the frameworks that run it.

Some kinds are built in (``kinds.yaml``). Operators add or change kinds in a file of the same form,
which docs/plugins/task.md describes. Every problem in it is reported with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from controller.jobs.spec.field_types import FrameworkName, Name, ParameterName, SiteName
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import Parameter, Strict, Text
from controller.jobs.spec.problems import Problem, make_path
from controller.site.yaml_file import read_yaml, validated

BUILT_IN: Final = Path(__file__).with_name("kinds.yaml")
MOST_KINDS: Final = 256
MOST_PARAMETERS: Final = 128

_PARAMETER: Final[TypeAdapter[Parameter]] = TypeAdapter(Parameter)
_NUMBERS: Final = frozenset({"integer", "floating"})
_WORDS: Final = frozenset({"text", "enumeration"})

_Number = Annotated[float, Field(allow_inf_nan=False)]
ParameterType = Literal[
    "text", "integer", "floating", "boolean", "enumeration", "secret", "file", "directory",
    "artefacts", "peer", "licence",
]  # fmt: skip


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise ValueError("should be a text, a number or a boolean")
    return value


_Scalar = Annotated[str | int | float | bool | None, BeforeValidator(_scalar)]


class KindParameter(Strict):
    """A parameter of a kind: its types and its allowed values.

    A job without the parameter gets the ``default``, as the first of the types.
    """

    type: Annotated[
        list[ParameterType], BeforeValidator(_listed), Field(min_length=1, max_length=16)
    ]
    title: Name | None = None
    required: bool = False
    default: _Scalar = None
    minimum: _Number | None = None
    maximum: _Number | None = None
    options: Annotated[list[Text], Field(min_length=1, max_length=1000)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        types = set(self.type)
        if (self.minimum, self.maximum) != (None, None) and not types <= _NUMBERS:
            raise ValueError("only integer and floating parameters can have a minimum or maximum")
        if self.options is not None and not types <= _WORDS:
            raise ValueError("only text and enumeration parameters can have options")
        if self.type[0] == "enumeration" and self.default is not None and self.options is None:
            raise ValueError("an enumeration with a default must have options")
        if self.default is None:
            return self
        if self.type[0] == "secret":  # every client can read the kinds
            raise ValueError("a secret cannot have a default")
        if self.required:
            raise ValueError("a required parameter cannot have a default")
        try:
            wrong = next(self.problems(self.make_default()), None)
        except ValidationError:
            raise ValueError(f"the default is not of the type {self.type[0]}") from None
        if wrong is not None:
            raise ValueError(f"the default {wrong.message}")
        return self

    def make_default(self) -> Parameter:
        """Return the parameter for a job that lacks it."""
        fields: dict[str, Any] = {"type": self.type[0], "value": self.default}
        if self.type[0] == "enumeration":
            fields["options"] = self.options
        return _PARAMETER.validate_python(fields)

    def problems(self, given: Parameter) -> Iterator[Problem]:
        """Yield the problems of a job's parameter."""
        if given.type not in self.type:
            yield Problem("type", f"must be {' or '.join(self.type)}")
            return
        value = getattr(given, "value", None)
        for index, one in enumerate(value if isinstance(value, list) else [value]):
            if (why := self._why_not(one)) is not None:
                yield Problem(f"value[{index}]" if isinstance(value, list) else "value", why)

    def _why_not(self, value: Any) -> str | None:
        if self.minimum is not None and value < self.minimum:
            return f"is less than {self.minimum:g}"
        if self.maximum is not None and value > self.maximum:
            return f"is more than {self.maximum:g}"
        if self.options is not None and value not in self.options:
            return "must be one of " + ", ".join(self.options)
        return None


class Kind(Strict):
    """A kind of jobs.

    - ``framework``: the default framework. ``frameworks``: the allowed ones; None: any.
    - ``closed``: jobs of the kind may have no other parameters.
    - ``artefacts``: jobs of the kind must have an output.
    """

    title: Name | None = None
    framework: FrameworkName | None = None
    frameworks: Annotated[list[FrameworkName], Field(max_length=16)] | None = None
    parameters: dict[ParameterName, KindParameter] = Field(
        default_factory=dict, max_length=MOST_PARAMETERS
    )
    closed: bool = False
    artefacts: bool = False

    @model_validator(mode="after")
    def _framework_is_one(self) -> Self:
        if self.framework and self.frameworks and self.framework not in self.frameworks:
            raise ValueError("framework must be one of the frameworks")
        return self

    def defaults(self, job: Job) -> dict[str, Parameter]:
        """Return the default parameters that the job lacks."""
        return {
            name: one.make_default()
            for name, one in self.parameters.items()
            if one.default is not None and name not in job.parameters
        }

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield the problems of a job of the kind."""
        if self.frameworks is not None and job.framework not in (None, *self.frameworks):
            known = ", ".join(self.frameworks) or "none"
            yield Problem(
                "framework", f"a job of the kind {job.kind} can have the framework {known}"
            )
        if self.artefacts and job.output is None:
            yield Problem("output", f"is missing: a job of the kind {job.kind} has artefacts")
        for name, one in self.parameters.items():
            path = make_path(["parameters", name])
            given = job.parameters.get(name)
            if given is not None:
                yield from (problem.under(path) for problem in one.problems(given))
            elif one.required:
                yield Problem(path, f"is missing: a job of the kind {job.kind} must have it")
        for name in job.parameters if self.closed else ():
            if name not in self.parameters:
                text = f"the kind {job.kind} does not have this parameter"
                yield Problem(make_path(["parameters", name]), text)


class Kinds(Strict):
    """All kinds; if ``closed``, jobs can have no other kind."""

    kinds: dict[SiteName, Kind] = Field(default_factory=dict, max_length=MOST_KINDS)
    closed: bool = False

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield the problems of a job's kind, and of its parameters for that kind."""
        kind = self.kinds.get(job.kind or "")
        if kind is not None:
            yield from kind.problems(job)
        elif self.closed and job.kind is not None:
            yield Problem("kind", "must be one of " + ", ".join(sorted(self.kinds)))


@cache
def built_in_kinds() -> Kinds:
    """Return the built-in kinds."""
    return _read(BUILT_IN, {})


def read_kinds(raw: str) -> Kinds:
    """Return the built-in kinds, changed by those in the file *raw*; null removes a kind.

    Raises:
        ValueError: With every problem of the file.
    """
    return _read(Path(raw), built_in_kinds().kinds)


def _read(file: Path, known: Mapping[str, Kind]) -> Kinds:
    given = read_yaml(file)
    named = given.get("kinds", {}) if isinstance(given, dict) else None
    if isinstance(named, dict):
        kinds = {**known, **named}
        given = given | {"kinds": {name: one for name, one in kinds.items() if one is not None}}
    return validated(given, Kinds)
